"""The few shapes of PromQL that the catalogue and the signals are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta

import promql_parser as promql

from slo.metrics import SERVICE
from slo.model import WINDOW_PLACE, Labels
from tidegate.core.model import Value

REGION = ("region",)
ARM = (SERVICE, "region", "role", "version")
"""One version in one role in one region of a service."""

WINDOW = "{{.window}}"
_STANDS_FOR_WINDOW = promql.display_duration(timedelta(seconds=123457))
"""Parsed in the window's place; so odd that no query of a person holds it."""


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


def of_service(query: str, service: str) -> str:
    """The same query of that service's series, whatever other services the same Prometheus knows."""
    return rewritten(query, lambda node: narrowed(node, {SERVICE: service}))


def rewritten(query: str, change: Callable[[promql.Expr], promql.Expr | None], *, window: str = WINDOW) -> str:
    """`query` over `window`, with every part changed that `change` has another one for.

    It is changed on its syntax tree, never as text, and laid out as people would, over several lines when it is long.

    Raises:
        ValueError: when the query is no PromQL that Prometheus 2 knows.
    """
    return with_window(promql.transform(parsed(query), None, change), window)


def narrowed(node: promql.Expr, labels: Labels) -> promql.Expr | None:
    """A selector that asks for `labels` too; None for any other part of a query."""
    if not isinstance(node, promql.VectorSelector):
        return None
    if node.matchers.or_matchers:
        raise ValueError("alternatives in braces, `{a or b}`, cannot be narrowed")
    added = [promql.Matcher(promql.MatchOp.Equal, name, value) for name, value in labels.items()]
    node.matchers = promql.Matchers([*node.matchers.matchers, *added])
    return promql.parse(str(node))


def parsed(query: str) -> promql.Expr:
    """The syntax tree of a query that may have `{{.window}}` in it."""
    return promql.parse(WINDOW_PLACE.sub(_STANDS_FOR_WINDOW, query))


def with_window(tree: promql.Expr, window: str) -> str:
    """A tree of `parsed` as text, with `window` where it had `{{.window}}`."""
    return tree.prettify().replace(f"[{_STANDS_FOR_WINDOW}", f"[{window}")
