"""A draft as YAML with its comments: what people read first. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import yaml

from pipelines.draft.model import Draft, Place

_WIDTH = 110
_NEVER_FOLD = 2**31 - 1


def draft_text(draft: Draft, head: tuple[str, ...] = ()) -> str:
    """The text of a `delivery.yaml`; `head` are lines of comment above all."""
    lines = [f"# {line}".rstrip() for line in head]
    for index, (key, value) in enumerate(draft.document.items()):
        # The first three keys say what the file is, and stand together.
        lines += [""] if index >= 3 else []
        lines += _entry(draft, (key,), value, 0)
    return "\n".join([*lines, ""])


def _entry(draft: Draft, place: Place, value: Any, depth: int) -> Iterator[str]:
    indent = "  " * depth
    key, comments = _flow(place[-1]), draft.comments.get(place, ())
    line = f"{indent}{key}: {_flow(value)}"
    block = _is_block(draft, place, value)
    # Where a value is from is said behind it; what is to be decided stands above.
    behind = " ".join(f"  # {each}" for each in comments if each.startswith("from ") and len(comments) == 1)
    if block or _is_list(value) or len(line + behind) > _WIDTH:
        behind = ""
    for comment in comments if not behind else ():
        yield from _comment(comment, indent)
    if block:
        yield f"{indent}{key}:"
        for inner, one in value.items():
            yield from _entry(draft, (*place, inner), one, depth + 1)
    elif _is_list(value):
        yield f"{indent}{key}:"
        yield from (f"{indent}  - {_flow(item)}" for item in value)
    else:
        yield line + behind
    yield from (f"{indent}# {line}" if line else "" for line in draft.after.get(place, ()))


def _is_list(value: Any) -> bool:
    """A list of lists or mappings: an item a line."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict | list)


def _is_block(draft: Draft, place: Place, value: Any) -> bool:
    """A mapping that is long, or has words of its own inside."""
    if not isinstance(value, dict) or not value:
        return False
    inside = any(each[: len(place)] == place and each != place for each in draft.comments)
    return inside or any(isinstance(one, dict) for one in value.values()) or len(_flow(value)) > 80


def _comment(text: str, indent: str) -> Iterator[str]:
    wide = _WIDTH - len(indent)
    for line in textwrap.wrap(text, wide, break_long_words=False, break_on_hyphens=False):
        yield f"{indent}# {line}"


def _flow(value: Any) -> str:
    """One value on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=_NEVER_FOLD, allow_unicode=True)
    return text.removesuffix("...\n").strip()
