"""Reads a file of one JSON object per line and tells every problem with its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tidegate.core.model import SpecModel
from tidegate.core.spec import Problem, SpecError, bounded_lines
from tidegate.core.text import failure_line, json_of

Line = TypeVar("Line", bound=SpecModel)

TAGS = frozenset({"union_tag_not_found", "union_tag_invalid"})
"""Errors that say that a line is of no kind that is known here."""
LONGEST_FOUND = 80
"""Characters of a wrong value in a message."""


def read_json_lines(
    path: Path, kind: type[Line], *, most: int | None = None
) -> tuple[list[tuple[int, Line]], list[Problem]]:
    """Every line that is a `kind`, with its number, and a problem for everything that is none; blank lines are skipped.

    Raises:
        SpecError: when the file cannot be read, has no line at all, or more than `most`.
    """
    lines = bounded_lines(path, "a JSON object per line", most=most)
    read: list[tuple[int, Line]] = []
    problems: list[Problem] = []
    for at, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            read.append((at, kind.model_validate(json_of(line))))
        except json.JSONDecodeError as error:
            found = f"text that is no JSON ({error.msg.lower()} at column {error.colno})"
            problems.append(Problem(str(path), at, "", found, "a JSON object"))
        except ValidationError as error:
            problems += line_problems(str(path), at, error)
        except ValueError as error:
            problems.append(
                Problem(str(path), at, "", f"text that is no JSON ({failure_line(error)})", "a JSON object")
            )
    if not read and not problems:
        raise SpecError([Problem(str(path), 1, "", "no lines", "at least one")])
    return read, problems


def line_problems(file: str, line: int, error: ValidationError) -> list[Problem]:
    """What is wrong with one line, field by field; what was found is cut short, for it may be a thousand numbers."""
    return [_problem(file, line, detail) for detail in error.errors()]


def _field(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    # pydantic puts the alternative into the place, as `[samples]`; it is no key of the line.
    return tuple(part for part in loc if isinstance(part, int) or "[" not in part)


def _problem(file: str, line: int, detail: ErrorDetails) -> Problem:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in _field(detail["loc"])).lstrip(".")
    if detail["type"] == "json_invalid":
        return Problem(file, line, path, f"text that is no JSON ({detail['ctx']['error']})", "a JSON object")
    if detail["type"] in TAGS:
        key = str(detail["ctx"]["discriminator"]).strip("'")
        found = f"{key} {detail['ctx']['tag']!r}" if "tag" in detail["ctx"] else f"an object without the key {key}"
        known = detail["ctx"].get("expected_tags")
        return Problem(file, line, path, found, f"one of {known}" if known else "a line that tidegate wrote")
    if detail["type"] == "missing":
        return Problem(file, line, path, "nothing", "a value here")
    if detail["type"] == "extra_forbidden":
        return Problem(file, line, path, "an unknown key", "only keys that are known")
    value: Any = detail["input"]
    expected = detail["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return Problem(file, line, path, _short(repr(value)), expected)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_FOUND else f"{text[: LONGEST_FOUND - 4]} ..."
