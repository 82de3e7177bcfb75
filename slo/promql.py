"""PromQL: the few shapes that catalogue and signals are made of, and queries rewritten on their syntax tree.

A query may have `{{.window}}` where its range goes. To narrow a query to a service, or to one arm of a region, every
selector gets matchers more, whatever stands around it; a query is never changed as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import lru_cache

import promql_parser as promql

from slo.metrics import OF_STARTS, SERVICE, VLLM
from slo.model import WINDOW_PLACE, Labels
from tidegate.core.metrics import TIMES, MetricSignal, MetricSource, escaped, literal, without_raw_strings
from tidegate.core.model import Value

REGION = ("region",)
ARM = (SERVICE, "region", "role", "version")
"""One version in one role in one region of a service."""

WINDOW = "{{.window}}"
_STANDS_FOR_WINDOW = promql.display_duration(timedelta(seconds=123457))
"""Parsed in the window's place; so odd that no query of a person holds it."""
KEPT = 1_000
"""Queries whose rewriting is remembered: every look at a region asks again for those of its SLOs."""


class Scope(Value):
    """Which series a query reads, over which window, and by which labels it is aggregated."""

    window: str
    matchers: tuple[str, ...] = ()
    by: tuple[str, ...] = ARM
    source: MetricSource | None = None
    """Whose labels the series have; those of our own scrape configuration when absent."""

    def rate(self, series: str, *matchers: str, per: str | None = None, beside: tuple[str, ...] = ()) -> str:
        """Events a second; with `per`, one series for each value of that label too.

        With `beside` (a bucket and its matchers), of those engines alone that have it.
        """
        by = self.labels if per is None else (*self.labels, per)
        vectors = [f"rate({self._selector(*each)}[{self.window}])" for each in ((series, *matchers), beside) if each]
        return sum_by(self._named(" and ignoring (le) ".join(vectors)), by)

    def level(self, series: str, *matchers: str) -> str:
        """The values of a gauge."""
        return self._named(self._selector(series, *matchers))

    def greatest(self, one: str, other: str) -> str:
        """The greater of both, or the one that is there; they differ in a label, or `or` would not keep both."""
        return f"max by ({', '.join(self.labels)}) ({one} or {other})"

    @property
    def _others(self) -> MetricSource | None:
        return None if self.source is None or self.source.has_own_labels else self.source

    @property
    def labels(self) -> tuple[str, ...]:
        """By which its series are told apart; rules bring the service along where others' series do not have it."""
        return self.by if self._others is None else tuple(label for label in self.by if label != SERVICE)

    def _selector(self, series: str, *matchers: str) -> str:
        others = self._others
        if others is None:
            return series_selector(series, *matchers, *self.matchers)
        of_source = {**others.matchers, **others.of_arms}
        return series_selector(series, *matchers, *(matcher(name, value) for name, value in of_source.items()))

    def _named(self, vector: str) -> str:
        """With the labels by which rules and dashboards know regions, roles and versions."""
        others = self._others
        if others is None:
            return vector
        if others.region_label and others.region_label != "region":
            vector = relabelled(vector, "region", "$1", others.region_label, "(.+)")
        for value, role in others.roles.items():
            vector = relabelled(vector, "role", role, others.arm_label, literal(value)) if "role" in self.by else vector
        if others.roles or "version" not in self.by or others.arm_label == "version":
            return vector
        return relabelled(vector, "version", "$1", others.arm_label, "(.+)")


def series_of_others(sources: Iterable[MetricSource]) -> frozenset[str]:
    """Names of what is read of sources that do not have the labels of our own scrape configuration."""
    found: set[str] = set()
    for source in sources:
        if source.has_own_labels:
            continue
        if counted := source.request_series:
            found |= {counted.metric, counted.cut or counted.metric, counted.timeouts or counted.metric}
        for signal in TIMES:
            if histogram := source.time_series(signal):
                found |= {f"{histogram.metric}{part}" for part in ("_bucket", "_count")}
        if MetricSignal.ENGINES in source.told:
            found |= {name for metric in (*VLLM, *OF_STARTS) for name in metric.series}
    return frozenset(found)


def matcher(label: str, pattern: str) -> str:
    """`label=~"pattern"`; `label="text"` where the expression is a text."""
    plain = literal(pattern) == pattern
    return f'{label}{"=" if plain else "=~"}"{escaped(pattern)}"'


def relabelled(vector: str, label: str, value: str, source: str, pattern: str) -> str:
    """`vector` with `label` set from what `pattern` finds in the label `source`; others are left as they are."""
    return f'label_replace({vector}, "{label}", "{value}", "{source}", "{escaped(pattern)}")'


def series_selector(series: str, *matchers: str) -> str:
    """`series{a="1", b=~"2|3"}`."""
    return f"{series}{{{','.join(matchers)}}}" if matchers else series


def sum_by(query: str, by: Iterable[str]) -> str:
    """One series for each value of the labels `by`."""
    return f"sum by ({', '.join(by)}) ({query})"


def or_zero(query: str, there: str) -> str:
    """0 where `there` has a series and `query` has none yet: a counter may begin with its first event."""
    return f"({query} or 0 * {there})"


def labelled(query: str, mark: str) -> str:
    """The same series with one more label, `counted`, so that `or` keeps them next to others."""
    return f'label_replace({query}, "counted", "{mark}", "", "")'


def nonzero(query: str) -> str:
    """No series where nothing happened: a ratio over no events is NaN, which would spoil every mean."""
    return f"({query} > 0)"


@lru_cache(KEPT)
def of_service(query: str, service: str, *, but: frozenset[str] = frozenset()) -> str:
    """The same query of that service's series, whatever other services the same Prometheus knows.

    Series named in `but` are others', whose label `service` is absent or something else.
    """

    def narrowed(node: promql.Expr) -> promql.Expr | None:
        theirs = isinstance(node, promql.VectorSelector) and node.name in but
        return None if theirs else with_matchers(node, {SERVICE: service})

    return rewrite(query, narrowed)


def rewrite(query: str, change: Callable[[promql.Expr], promql.Expr | None], *, window: str = WINDOW) -> str:
    """`query` over `window`, with every part changed that `change` has another one for.

    It is changed on its syntax tree, never as text, and laid out as people would, over several lines when it is long.

    Raises:
        ValueError: when the query is no PromQL that Prometheus 2 knows.
    """
    return with_window(promql.transform(parse(query), None, change), window)


def with_matchers(node: promql.Expr, labels: Labels) -> promql.Expr | None:
    """A selector with `labels` as matchers too; None for any other part of a query."""
    if not isinstance(node, promql.VectorSelector):
        return None
    if node.matchers.or_matchers:
        raise ValueError("alternatives in braces, `{a or b}`, cannot be narrowed")
    # `str` writes values without their escapes.
    kept = [promql.Matcher(each.op, each.name, escaped(each.value)) for each in node.matchers.matchers]
    added = [promql.Matcher(promql.MatchOp.Equal, name, escaped(value)) for name, value in labels.items()]
    node.matchers = promql.Matchers([*kept, *added])
    return parse(str(node))


def parse(query: str) -> promql.Expr:
    """The syntax tree of a query that may have `{{.window}}` in it."""
    return promql.parse(without_raw_strings(WINDOW_PLACE.sub(_STANDS_FOR_WINDOW, query)))


def with_window(tree: promql.Expr, window: str) -> str:
    """A tree of `parse` as text, with `window` where it had `{{.window}}`."""
    return tree.prettify().replace(f"[{_STANDS_FOR_WINDOW}", f"[{window}")


def of_arm(query: str, *, window: str, arm: Labels, counted: bool = False) -> str:
    """`query` over `window`, of the series that carry the labels `arm`; of `counted` events, how many there were.

    Else rates say how many there are a second.

    Raises:
        ValueError: when the query is no PromQL that Prometheus 2 knows.
    """
    return _of_arm(query, window, tuple(arm.items()), counted)


@lru_cache(KEPT)
def _of_arm(query: str, window: str, arm: tuple[tuple[str, str], ...], counted: bool) -> str:
    def narrowed(node: promql.Expr) -> promql.Expr | None:
        if counted and isinstance(node, promql.Call) and node.func.name in {"rate", "irate"}:
            return parse(f"increase({node.args[0].prettify()})")
        return with_matchers(node, dict(arm))

    return rewrite(query, narrowed, window=window)


@lru_cache(KEPT)
def series_of(query: str) -> frozenset[str]:
    """The names of the series that `query` reads; an empty one for a selector that does not say a name.

    Raises:
        ValueError: when the query is no PromQL that Prometheus 2 knows.
    """
    return frozenset(node.name or "" for node in _nodes(query) if isinstance(node, promql.VectorSelector))


@lru_cache(KEPT)
def longest_step(query: str) -> timedelta:
    """Between two looks of a subquery; zero in a query without one.

    Raises:
        ValueError: when the query is no PromQL that Prometheus 2 knows.
    """
    steps = [node.step for node in _nodes(query) if isinstance(node, promql.SubqueryExpr)]
    return max((step for step in steps if step), default=timedelta())


def quotient(query: str) -> tuple[str, str] | None:
    """Both sides of a query that divides one thing by another without further ado; None for any other query.

    Raises:
        ValueError: when the query is no PromQL that Prometheus 2 knows.
    """
    tree = parse(query)
    while isinstance(tree, promql.ParenExpr):
        tree = tree.expr
    if not (isinstance(tree, promql.BinaryExpr) and str(tree.op) == "/") or tree.modifier is not None:
        return None
    return with_window(tree.lhs, WINDOW), with_window(tree.rhs, WINDOW)


def _nodes(query: str) -> list[promql.Expr]:
    found: list[promql.Expr] = []

    def note(node: promql.Expr) -> promql.Expr:
        found.append(node)
        return node

    promql.transform(parse(query), None, note)
    return found
