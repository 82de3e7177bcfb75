"""Cases that are alike, such as seeds: before each commit some of them are enough."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest


def one_of(every: int, number: int) -> tuple[pytest.MarkDecorator, ...]:
    """The marks of the case with this number: `make test` runs one of so many, `make test-long` the others."""
    return () if number % every == 0 else (pytest.mark.long,)


def long(*values: Any, id: str | None = None) -> Any:
    """A case that is like another one of its test, which `make test` runs."""
    return pytest.param(*values, marks=pytest.mark.long, id=id)


def some(values: Iterable[Any], *, every: int) -> list[Any]:
    """Values in their order, of which `make test` runs one of so many."""
    return [pytest.param(value, marks=one_of(every, number)) for number, value in enumerate(values)]


def crossed(first: Iterable[Any], second: Iterable[Any], *, every: int) -> list[Any]:
    """Each value with each of the other parameter: `make test` runs one of so many, and of each value some."""
    pairs = product(enumerate(first), enumerate(second))
    return [pytest.param(one, other, marks=one_of(every, row + column)) for (row, one), (column, other) in pairs]
