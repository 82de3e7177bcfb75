"""Cases that are alike, such as seeds: before each commit some of them are enough."""

from __future__ import annotations

from typing import Any

import pytest


def one_of(every: int, number: int) -> tuple[pytest.MarkDecorator, ...]:
    """The marks of the case with this number: `make test` runs one of so many, `make test-long` the others."""
    return () if number % every == 0 else (pytest.mark.long,)


def long(*values: Any, id: str | None = None) -> Any:
    """A case that is like another one of its test, which `make test` runs."""
    return pytest.param(*values, marks=pytest.mark.long, id=id)
