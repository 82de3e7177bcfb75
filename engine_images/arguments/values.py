"""Whether a value is one that an option takes, and what it means."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable

from engine_images.arguments.model import ArgumentValue
from engine_images.pinned.model import Kind, Option

_COUNT = re.compile(r"(\d+(?:\.\d+)?)([kmgt])|(\d+)([KMGT]?)")
_POWER = {"k": 1, "m": 2, "g": 3, "t": 4}

AUTO = "auto"
"""A length that vLLM chooses itself: as much as fits into memory."""


def read_count(value: ArgumentValue) -> int | None:
    """`8192`, `8k` (8000), `8K` (8192) or `1.5m` as a number; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if value >= 0 else None
    match = _COUNT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    if match[1]:
        return int(float(match[1]) * 1000 ** _POWER[match[2]])
    return int(match[3]) * (1024 ** _POWER[match[4].lower()] if match[4] else 1)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)


def complaint(option: Option, value: ArgumentValue) -> str | None:
    """What the option would take instead of `value`; None when it takes it."""
    if not option.many:
        return _complaint_about_one(option, value)
    values = value if isinstance(value, list) else [value]
    wrong = next((text for item in values if (text := _complaint_about_one(option, item))), None)
    if wrong is None and any(isinstance(item, str) and item.startswith("-") for item in values):
        # With several values there is no `--name=value`, so vLLM would take it for an option.
        wrong = "no text that begins with a dash"
    return f"a list of: {wrong}" if wrong else None


def _complaint_about_one(option: Option, value: ArgumentValue) -> str | None:
    if option.choices and value not in option.choices:
        return _choices(option, value)
    takes, wish = _TAKES[option.kind]
    if not takes(value):
        return wish
    if value is False and option.kind is Kind.FLAG and not option.negatable:
        return "true, or nothing at all: vLLM cannot be told the opposite"
    if isinstance(value, dict) and option.fields:
        return _unknown_key(option, value)
    return None


def _choices(option: Option, value: ArgumentValue) -> str:
    near = nearest(str(value), [str(choice) for choice in option.choices])
    return f"{near} (the nearest choice)" if near else "one of " + ", ".join(str(choice) for choice in option.choices)


def _unknown_key(option: Option, value: dict[str, ArgumentValue]) -> str | None:
    unknown = next((key for key in value if key not in option.fields), None)
    if unknown is None:
        return None
    near = nearest(unknown, option.fields)
    instead = f"{near}?" if near else "one of " + ", ".join(option.fields)
    return f"only keys that vLLM knows: {unknown} is none, did you mean {instead}"


def _is_number(value: ArgumentValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TAKES: dict[Kind, tuple[Callable[[ArgumentValue], bool], str]] = {
    # A model's name may be all digits; YAML then makes a number of it.
    Kind.TEXT: (lambda value: isinstance(value, str) or _is_number(value), "text"),
    Kind.FLAG: (lambda value: isinstance(value, bool), "true or false"),
    Kind.INTEGER: (lambda value: isinstance(value, int) and _is_number(value), "a whole number"),
    Kind.COUNT: (lambda value: read_count(value) is not None, "a whole number, or one such as 8k (8000) or 8K (8192)"),
    Kind.LENGTH: (
        lambda value: value == AUTO or read_count(value) is not None,
        "a whole number, one such as 8k (8000) or 8K (8192), or auto",
    ),
    Kind.NUMBER: (_is_number, "a number"),
    Kind.JSON: (lambda value: isinstance(value, dict | list), "a mapping or a list"),
    Kind.OBJECT: (lambda value: isinstance(value, dict), "a mapping"),
    Kind.TEXT_OR_JSON: (lambda value: isinstance(value, str | dict), "text or a mapping"),
    Kind.TEXT_OR_FLAG: (lambda value: isinstance(value, str) or value is True, "text or true"),
}
"""What each kind takes, and in words."""
