"""Which labels a query's series have, and what it asks for that is not there: names, matchers, `by` and `on`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import promql_parser as promql

from tidegate.core.model import Value

Labels = frozenset[str]


class Reading(Value):
    """What is known of a query without asking Prometheus."""

    labels: Labels
    """Of the series that it gives."""
    series: Labels
    """Names of those that it asks for."""
    problems: tuple[str, ...]
    """Each in one sentence; a query without any has a meaning, if not necessarily data."""


def read_labels(query: str, known: Mapping[str, Labels]) -> Reading:
    """Read a query on series whose labels are `known`.

    Raises:
        ValueError: when it is no PromQL.
    """
    reader = _Reader(known)
    labels = reader.of(promql.parse(query))
    return Reading(labels=labels, series=frozenset(reader.series), problems=tuple(reader.problems))


class _Reader:
    """Walks an expression from its leaves up."""

    def __init__(self, known: Mapping[str, Labels]) -> None:
        self._known = known
        self.series: set[str] = set()
        self.problems: list[str] = []

    def of(self, expression: object) -> Labels:
        """The labels of an expression's series; none for numbers and texts."""
        found: Labels = frozenset()
        match expression:
            case promql.VectorSelector():
                found = self._selected(expression)
            case promql.MatrixSelector():
                found = self._selected(expression.vector_selector)
            case promql.AggregateExpr():
                found = self._aggregated(expression)
            case promql.BinaryExpr():
                found = self._combined(expression)
            case promql.Call():
                found = self._called(expression)
            case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
                found = self.of(expression.expr)
        return found

    def _selected(self, selector: promql.VectorSelector) -> Labels:
        name = selector.name or ""
        self.series.add(name)
        if name not in self._known:
            self.problems.append(f"nobody exports or records {name}")
            return frozenset(matcher.name for matcher in selector.matchers.matchers)
        self._expect(
            (matcher.name for matcher in selector.matchers.matchers), self._known[name], f"{name} has no label"
        )
        return self._known[name]

    def _aggregated(self, aggregate: promql.AggregateExpr) -> Labels:
        inner = self.of(aggregate.expr)
        if aggregate.modifier is None:
            return frozenset()
        named = frozenset(aggregate.modifier.labels)
        self._expect(named, inner, "is aggregated by, but there is no label")
        return named if aggregate.modifier.type == promql.AggModifierType.By else inner - named

    def _combined(self, binary: promql.BinaryExpr) -> Labels:
        left, right = self.of(binary.lhs), self.of(binary.rhs)
        if str(binary.op) == "or" or not (_is_vector(binary.lhs) and _is_vector(binary.rhs)):
            return left | right
        matched = self._matched(binary.modifier, left, right)
        if str(binary.op) in {"and", "unless"}:
            return left
        if binary.modifier is None or binary.modifier.card == promql.VectorMatchCardinality.OneToOne:
            return matched
        many = left if binary.modifier.card == promql.VectorMatchCardinality.ManyToOne else right
        return many | frozenset(binary.modifier.group_labels or ())

    def _matched(self, modifier: promql.BinModifier | None, left: Labels, right: Labels) -> Labels:
        """The labels that both sides are matched on; sides that differ in them never meet."""
        matching = modifier.matching if modifier else None
        named = frozenset(matching.labels) if matching else frozenset()
        if matching and matching.type == promql.LabelModifierType.Include:
            self._expect(named, left & right, "is matched on, but one side has no label")
            return named
        if left - named != right - named:
            self.problems.append(f"the sides never meet: one has {_listed(left - named)}, one {_listed(right - named)}")
        return left - named

    def _called(self, call: promql.Call) -> Labels:
        labels = frozenset[str]().union(*(self.of(argument) for argument in call.args))
        texts = [argument.val for argument in call.args if isinstance(argument, promql.StringLiteral)]
        if call.func.name == "label_replace":
            target, _, source, _ = texts
            self._expect([source] if source else [], labels, "is replaced from, but there is no label")
            return labels | {target}
        return labels - {"le"} if call.func.name == "histogram_quantile" else labels

    def _expect(self, asked: Iterable[str], there: Labels, complaint: str) -> None:
        self.problems += [f"{complaint} {label}" for label in sorted(set(asked) - there)]


def _is_vector(expression: object) -> bool:
    match expression:
        case promql.NumberLiteral():
            return False
        case promql.ParenExpr() | promql.UnaryExpr():
            return _is_vector(expression.expr)
        case promql.BinaryExpr():
            return _is_vector(expression.lhs) or _is_vector(expression.rhs)
    return True


def _listed(labels: Labels) -> str:
    return ", ".join(sorted(labels)) or "no label"
