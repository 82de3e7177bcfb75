"""As much of Argo Workflows' expressions as is rendered: tags, `when`, and when to try again."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_TAG = re.compile(r"{{([^{}]+)}}")
_EQUAL = re.compile(r"'([^']*)' == '([^']*)'")
_STATUS = re.compile(r'lastRetry\.status == "(\w+)"')
_CODE = re.compile(r"asInt\(lastRetry\.exitCode\) in (\[[\d, ]+\])")


class UnresolvedError(AssertionError):
    """A tag for which nothing is known there: Argo Workflows would refuse the template, or start a pod with it."""


def filled(part: Any, known: Mapping[str, str]) -> Any:
    """The same with every tag replaced."""
    if isinstance(part, dict):
        return {key: filled(value, known) for key, value in part.items()}
    if isinstance(part, list):
        return [filled(value, known) for value in part]
    return _TAG.sub(lambda tag: _known(tag[1], known), part) if isinstance(part, str) else part


def _known(name: str, known: Mapping[str, str]) -> str:
    if name not in known:
        raise UnresolvedError(f"{name} is none of {', '.join(sorted(known))}")
    return known[name]


def holds(when: str) -> bool:
    """A `when` whose tags are filled."""
    return any(_sides(part) for part in when.split(" || "))


def _sides(comparison: str) -> bool:
    match = _EQUAL.fullmatch(comparison)
    assert match, f"not a comparison of two quoted texts: {comparison}"
    return match[1] == match[2]


def tries_again(expression: str, *, status: str, code: int) -> bool:
    """The `expression` of a retry strategy; `code` is -1 where no process ended."""
    return any(_fits(part, status, code) for part in expression.split(" || "))


def _fits(part: str, status: str, code: int) -> bool:
    if match := _STATUS.fullmatch(part):
        return match[1] == status
    match = _CODE.fullmatch(part)
    assert match, f"no condition that this knows: {part}"
    return code in json.loads(match[1])
