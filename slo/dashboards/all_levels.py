"""The dashboards of one service, from the night's to the month's."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from slo.dashboards.cost import cost as cost_dashboard
from slo.dashboards.engineering import engineering
from slo.dashboards.model import Dashboard
from slo.dashboards.on_call import on_call
from slo.dashboards.promises import promises_of
from slo.spec import CostSpec, CountedBy, SloSpec

_LONGEST_NAME = 26
"""Of a service in a uid: Grafana's are 40 characters at most."""


def dashboards_of(
    slos: Sequence[SloSpec],
    *,
    service: str,
    cost: CostSpec | None = None,
    counted_by: CountedBy = CountedBy.PROXY,
) -> tuple[Dashboard, Dashboard, Dashboard]:
    """L1 on-call, L2 ML engineering and L3 cost; the lines in them are what `slos` promise.

    `service` and `counted_by` are those with which the rules of these SLOs and of the signals were made.
    """
    promises = promises_of(service, slos)
    return (
        on_call(promises, _uid(service, "l1-on-call")),
        engineering(promises, _uid(service, "l2-ml"), counted_by=counted_by),
        cost_dashboard(promises, cost, _uid(service, "l3-cost")),
    )


def _uid(service: str, level: str) -> str:
    """The same at every export, so that links and bookmarks keep."""
    short = service if len(service) <= _LONGEST_NAME else f"{service[:17]}-{sha256(service.encode()).hexdigest()[:8]}"
    return f"{short}-{level}"
