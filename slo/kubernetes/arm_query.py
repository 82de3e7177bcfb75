"""An SLO's queries, narrowed to one arm of one region: the same events, fewer of them.

Every selector gets the arm's matchers, whatever stands around it. Values are placeholders of Argo Rollouts,
which fills them in before Prometheus is asked.
"""

from __future__ import annotations

from datetime import timedelta

import promql_parser as promql

from slo.model import Labels
from slo.promql import WINDOW, narrowed, parsed, rewritten, with_window

Arm = Labels
"""Labels, and the values by which one arm is chosen."""


def of_arm(query: str, *, window: str, arm: Arm) -> str:
    """`query` over `window`, of the series that carry the labels `arm`.

    Raises:
        ValueError: when the query is no PromQL that Prometheus 2 knows.
    """
    return rewritten(query, lambda node: narrowed(node, arm), window=window)


def count_of_arm(query: str, *, window: str, arm: Arm) -> str:
    """As `of_arm`, with rates turned into counts: how many events there were, not how many a second.

    Raises:
        ValueError: when the query is no PromQL that Prometheus 2 knows.
    """
    return rewritten(query, lambda node: _counted(narrowed(node, arm) or node), window=window)


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
    tree = parsed(query)
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

    promql.transform(parsed(query), None, note)
    return found


def _counted(node: promql.Expr) -> promql.Expr | None:
    if isinstance(node, promql.Call) and node.func.name in {"rate", "irate"}:
        return promql.parse(f"increase({node.args[0].prettify()})")
    return node
