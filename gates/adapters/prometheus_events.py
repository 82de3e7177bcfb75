"""An SLO's events from PromQL, as many as Prometheus thinks there were.

`rate()` and `increase()` extrapolate and do not see the first sample of a new series, so these counts are
near the truth, not on it. Where the proxy's counters say the same, evidence is the better source.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from gates.adapters.prometheus_api import api_of_region
from gates.burn.evidence import Events
from gates.burn.spec import BurnRateGate, filled
from gates.model import ArmKey, NoData
from tidegate.core.errors import OutsideError


class PrometheusEvents:
    """An `EventSource`."""

    def __init__(self, url: str | Mapping[str, str], *, timeout_seconds: int = 5) -> None:
        """`url` is Prometheus' own address, or one for each region; nothing is asked yet."""
        self._api = api_of_region(url, timeout_seconds=timeout_seconds)

    def events(self, gate: BurnRateGate, arm: ArmKey, since: datetime, until: datetime) -> Events | NoData:
        """As `EventSource`; choose windows of three scrape intervals or more, or `rate` sees nothing."""
        if gate.errors_query is None or gate.total_query is None:
            return NoData(reason="the gate has no queries")
        window = until - since
        total, bad = (
            self._number(arm.region, filled(query, window=window, places=arm.model_dump()), until)
            for query in (gate.total_query, gate.errors_query)
        )
        if isinstance(total, NoData):
            return total
        if isinstance(bad, NoData):
            # A query with a wrong label gives nothing as well; taken for 0, it would never see an error.
            return NoData(reason=f"{bad.reason}; end it with `or vector(0)` if no errors are no series")
        factor = window / timedelta(seconds=1) if gate.counted_as == "rate" else 1.0
        counted = round(total * factor)
        return Events(total=counted, bad=min(round(bad * factor), counted))

    def _number(self, region: str, query: str, at: datetime) -> float | NoData:
        answer = self._api(region).ask(query, at)
        if not answer:
            return NoData(reason=f"Prometheus has nothing for {query}")
        value = _value(query, answer)
        if not math.isfinite(value) or value < 0:
            return NoData(reason=f"Prometheus answers {value:g} to {query}")
        return value


def _value(query: str, answer: list[Any]) -> float:
    if isinstance(answer[0], dict):
        if len(answer) > 1:
            raise OutsideError(f"{query} gives {len(answer)} series", hint="write sum() around it")
        if "value" not in answer[0]:
            raise OutsideError(f"{query} gives no single number", hint="it must be an instant vector or a scalar")
        return float(answer[0]["value"][1])
    # A scalar: its time and its value.
    return float(answer[1])
