"""Reads a file of one JSON object per line and tells every problem with its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tidegate.core.model import SpecModel
from tidegate.core.spec import Problem, SpecError

Line = TypeVar("Line", bound=SpecModel)


def read_json_lines(path: Path, kind: type[Line]) -> tuple[list[tuple[int, Line]], list[Problem]]:
    """Every line that is a `kind`, with its number, and a problem for everything that is none; blank lines are skipped.

    Raises:
        SpecError: when the file cannot be read, or has no line at all.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError([Problem(str(path), 1, "", "no readable text", "a JSON object per line")]) from error
    read: list[tuple[int, Line]] = []
    problems: list[Problem] = []
    for at, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            read.append((at, kind.model_validate(json.loads(line))))
        except json.JSONDecodeError as error:
            found = f"{error.msg.lower()} at column {error.colno}"
            problems.append(Problem(str(path), at, "", found, "a JSON object"))
        except ValidationError as error:
            problems += [_problem(str(path), at, detail) for detail in error.errors()]
    if not read and not problems:
        raise SpecError([Problem(str(path), 1, "", "no lines", "at least one")])
    return read, problems


def _problem(file: str, line: int, detail: ErrorDetails) -> Problem:
    path = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "missing":
        return Problem(file, line, path, "nothing", "a value here")
    value: Any = detail["input"]
    expected = detail["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return Problem(file, line, path, repr(value), expected)
