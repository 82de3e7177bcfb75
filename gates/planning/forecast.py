"""What a gate will typically do, told before anything is deployed, and what would let it reach its verdict in time.

After how many requests, and when, it says yes to a healthy canary; how soon a gate of metric tests catches a
regression of the margin's size; and which regressions it cannot see in the time it is given. Each proposal is searched
for by the same forecast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta

from gates.analyses.base import MonitoredGate, TestedGate
from gates.evidence.batch import Source
from gates.planning.power import caught, seconds_to_pass
from gates.sequential_test import AnalysisPlan, metric_tests
from gates.traffic import Assumptions, Change, Expected, Exposure, GateForecast, Unit
from tidegate.core.units import format_duration, parse_duration

UNITS: Mapping[Source, Unit] = {"probe": "pairs", "load": "blocks"}


def forecasts(plan: AnalysisPlan, exposure: Exposure, assumed: Assumptions | None = None) -> tuple[GateForecast, ...]:
    """One for each gate and each source that counts for it."""
    assumed = assumed or Assumptions()
    return tuple(
        _Forecaster(plan, gate, source, assumed).forecast(exposure)
        for gate in plan.gates
        for source in plan.sources_of(gate)
    )


LIKELY = 1.5
"""Eight of ten healthy canaries have passed by so many times the typical time. Measured: 1.0 to 1.8 times."""
MOST_PERCENT = 50
"""Of users: beyond, the stable arm becomes the one that tells too little."""
MOST_PAIRS_PER_SECOND = 50.0
ADVICE_STEPS = 10


def two_digits(value: float) -> float:
    """Rounded up: what is advised must be enough."""
    scale = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(value / scale - 1e-6) * scale


def round_up(seconds: float) -> str:
    """A duration as specs write it, rounded up to what a person would write."""
    steps: Mapping[float, float] = {120: 10, 7200: 60, 86400: 600, math.inf: 3600}
    step = next(step for most, step in steps.items() if seconds <= most)
    return format_duration(timedelta(seconds=math.ceil(seconds / step) * step))


class _Forecaster:
    """One gate on one source."""

    def __init__(self, plan: AnalysisPlan, gate: str, source: Source, assumed: Assumptions) -> None:
        self._plan, self._gate, self._source, self._assumed = plan, gate, source, assumed
        self._settings = plan.settings[gate]

    def forecast(self, exposure: Exposure) -> GateForecast:
        arrivals, passes = self._expected(exposure).arrivals, self._passes(exposure)
        by_looks = isinstance(self._settings, MonitoredGate) and self._settings.by_looks
        timed = by_looks or exposure.timed(self._source)

        def count(seconds: float) -> int | None:
            per_second = 1 / arrivals.look if by_looks else arrivals.canary
            return math.ceil(seconds * per_second - 1e-6) if math.isfinite(seconds) else None

        def told(seconds: float) -> float | None:
            """When the look is over that shows it."""
            looks = seconds / arrivals.look
            return math.ceil(looks - 1e-6) * arrivals.look if timed and math.isfinite(looks) else None

        reachable = not timed or passes <= exposure.within_seconds
        found = GateForecast(
            gate=self._gate,
            source=self._source,
            unit="looks" if by_looks else UNITS.get(self._source, "requests"),
            canary_requests_to_pass=count(passes),
            seconds_to_pass=told(passes),
            within_seconds=exposure.within_seconds,
            reachable=reachable,
            proposals={} if reachable else dict(self._proposals(exposure, passes)),
        )
        if not isinstance(self._settings, TestedGate):
            return found
        # The first test of a gate is what a regression shows itself in; its weight is part of the answer.
        mine = (self._gate, self._source)
        weight = max(each.weight for each, _ in metric_tests(self._plan) if (each.gate, each.source) == mine)
        needed, within = -math.log(self._plan.rollback * weight), exposure.within_seconds
        worse = caught(self._settings, self._expected(exposure), needed, within_seconds=within)
        seen = {
            "scale": self._settings.scale,
            "regression_share": worse.regression,
            "canary_requests_to_fail": count(worse.seconds),
            "seconds_to_fail": told(worse.seconds),
            "smallest_regression_share": worse.smallest if timed else None,
        }
        return found.model_copy(update=seen)

    def _expected(self, exposure: Exposure) -> Expected:
        arrivals = exposure.arrivals(self._source, judged=self._settings.judged)
        return Expected(arrivals, self._assumed, exposure.pairs(self._source), self._plan.temper)

    def _passes(self, exposure: Exposure) -> float:
        """Seconds until half of all healthy canaries have passed; infinity for never."""
        if isinstance(self._settings, MonitoredGate):
            return self._settings.passes(self._expected(exposure), self._plan.conditions)
        assert isinstance(self._settings, TestedGate), f"no sequential test asks {self._gate}"
        return seconds_to_pass(self._settings, self._expected(exposure), -math.log(self._plan.accept))

    def _proposals(self, exposure: Exposure, passes: float) -> Iterator[tuple[Change, float]]:
        """The least of each that alone lets eight of ten healthy canaries pass in time, as a person would write it."""
        if math.isfinite(passes):
            yield "within", parse_duration(round_up(LIKELY * passes)).total_seconds()
        field: Change = "percent"
        rounded: Callable[[float], float] = math.ceil
        low, high = exposure.percent, float(100 if exposure.mirrored else MOST_PERCENT)
        if self._source == "probe":
            field, rounded = "pairs_per_second", two_digits
            low, high = exposure.pairs_per_second or 1.0, MOST_PAIRS_PER_SECOND

        def enough(value: float) -> bool:
            changed = exposure.model_copy(update={field: rounded(value)})
            return self._passes(changed) <= exposure.within_seconds / LIKELY

        # More users bring no blocks of load.
        least = None if self._source == "load" else _least(enough, low, high)
        if least is not None:
            yield field, rounded(least)


def _least(enough: Callable[[float], bool], low: float, high: float) -> float | None:
    """The least value that is enough, to a few percent; `low` is not. None when not even `high` is."""
    if low >= high or not enough(high):
        return None
    for _ in range(ADVICE_STEPS):
        if high / low < 1.03:
            break
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
