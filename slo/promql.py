"""The few shapes of PromQL that the catalogue and the signals are made of."""

from __future__ import annotations

from collections.abc import Iterable

import promql_parser

from slo.model import WINDOW_PLACE
from tidegate.core.model import Value

REGION = ("region",)
ARM = ("region", "role", "version")
"""One version in one role in one region."""

WINDOW = "{{.window}}"
_STANDS_FOR_WINDOW = "1d10h17m37s"
"""Parsed in the window's place; so odd that no query holds it."""


class Scope(Value):
    """Which series are asked, over how long, and what is told apart."""

    window: str
    matchers: tuple[str, ...] = ()
    by: tuple[str, ...] = ARM

    def rate(self, series: str, *matchers: str, per: str | None = None) -> str:
        """Events a second; with `per`, one series for each value of that label too."""
        by = self.by if per is None else (*self.by, per)
        return summed(f"rate({selected(series, *matchers, *self.matchers)}[{self.window}])", by)

    def greatest(self, one: str, other: str) -> str:
        """The greater of both, or the one that is there; they differ in a label, or `or` would not keep both."""
        return f"max by ({', '.join(self.by)}) ({one} or {other})"


def selected(series: str, *matchers: str) -> str:
    """`series{a="1", b=~"2|3"}`."""
    return f"{series}{{{','.join(matchers)}}}" if matchers else series


def summed(query: str, by: Iterable[str]) -> str:
    """One series for each value of the labels `by`."""
    return f"sum by ({', '.join(by)}) ({query})"


def or_zero(query: str, there: str) -> str:
    """0 where `there` has a series and `query` has none yet: a counter may begin with its first event."""
    return f"({query} or 0 * {there})"


def marked(query: str, mark: str) -> str:
    """The same series with one more label, `counted`."""
    return f'label_replace({query}, "counted", "{mark}", "", "")'


def some(query: str) -> str:
    """Nothing where nothing happened: a share of no events is unknown, and its NaN would spoil every mean."""
    return f"({query} > 0)"


def pretty(query: str) -> str:
    """The same query as people would lay it out, over several lines when it is long."""
    tree = promql_parser.parse(WINDOW_PLACE.sub(_STANDS_FOR_WINDOW, query))
    return tree.prettify().replace(f"[{_STANDS_FOR_WINDOW}", f"[{WINDOW}")
