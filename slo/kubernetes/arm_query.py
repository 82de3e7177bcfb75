"""An SLO's queries, narrowed to one arm of one region: the same events, fewer of them.

Queries are changed on their syntax tree, never as text: every selector gets the arm's matchers, whatever
stands around it. Values are placeholders of Argo Rollouts, which fills them in before Prometheus is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta

import promql_parser as promql

from slo.model import WINDOW_PLACE

Arm = Mapping[str, str]
"""Labels, and the values by which one arm is chosen."""

_STAND_IN = promql.display_duration(timedelta(seconds=123457))
"""Parsed in the window's place; so odd that no query of a person holds it."""


def of_arm(query: str, *, window: str, arm: Arm) -> str:
    """`query` over `window`, of the series that carry the labels `arm`.

    Raises:
        ValueError: when the query is no PromQL that Prometheus 2 knows.
    """
    return _rewritten(query, window, lambda node: _narrowed(node, arm))


def count_of_arm(query: str, *, window: str, arm: Arm) -> str:
    """As `of_arm`, with rates turned into counts: how many events there were, not how many a second.

    Raises:
        ValueError: when the query is no PromQL that Prometheus 2 knows.
    """
    return _rewritten(query, window, lambda node: _counted(_narrowed(node, arm) or node))


def series_of(query: str) -> frozenset[str]:
    """The names of the series that `query` reads; an empty one for a selector that does not say a name.

    Raises:
        ValueError: when the query is no PromQL that Prometheus 2 knows.
    """
    return frozenset(node.name or "" for node in _nodes(query) if isinstance(node, promql.VectorSelector))


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
    tree = _parsed(query)
    while isinstance(tree, promql.ParenExpr):
        tree = tree.expr
    if not (isinstance(tree, promql.BinaryExpr) and str(tree.op) == "/") or tree.modifier is not None:
        return None
    return _with_window(tree.lhs, "{{.window}}"), _with_window(tree.rhs, "{{.window}}")


def _nodes(query: str) -> list[promql.Expr]:
    found: list[promql.Expr] = []

    def note(node: promql.Expr) -> promql.Expr:
        found.append(node)
        return node

    promql.transform(_parsed(query), None, note)
    return found


def _rewritten(query: str, window: str, change: Callable[[promql.Expr], promql.Expr | None]) -> str:
    return _with_window(promql.transform(_parsed(query), None, change), window)


def _parsed(query: str) -> promql.Expr:
    return promql.parse(WINDOW_PLACE.sub(_STAND_IN, query))


def _with_window(tree: promql.Expr, window: str) -> str:
    return tree.prettify().replace(f"[{_STAND_IN}", f"[{window}")


def _narrowed(node: promql.Expr, arm: Arm) -> promql.Expr | None:
    if not isinstance(node, promql.VectorSelector):
        return None
    if node.matchers.or_matchers:
        raise ValueError("alternatives in braces, `{a or b}`, cannot be narrowed to an arm")
    added = [promql.Matcher(promql.MatchOp.Equal, name, value) for name, value in arm.items()]
    node.matchers = promql.Matchers([*node.matchers.matchers, *added])
    return promql.parse(str(node))


def _counted(node: promql.Expr) -> promql.Expr | None:
    if isinstance(node, promql.Call) and node.func.name in {"rate", "irate"}:
        return promql.parse(f"increase({node.args[0].prettify()})")
    return node
