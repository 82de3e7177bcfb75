"""What a gate will typically do, told before anything is deployed, and what would let it reach its verdict in time.

After how many requests, and when, it says yes to a healthy canary; how soon it catches a regression of the
margin's size; and which regressions it cannot see in the time it is given. Each remedy is searched for with the same
expected traffic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

from gates.analyses.base import MonitoredGate, StageUse, TestedGate
from gates.evidence.batch import Source
from gates.planning.power import PowerCurve, passes_by, power_curve
from gates.sequential_test import AnalysisPlan, metric_tests
from gates.spec import tested_kinds
from gates.traffic import Assumptions, Exposure, GateForecast, forecast_of, told_by
from tidegate.core.durations import format_duration
from tidegate.core.model import SpecModel

LIKELY = 1.5
"""Eight of ten healthy canaries have passed by so many times the typical time. Measured: 1.0 to 1.8 times."""


def forecasts(plan: AnalysisPlan, exposure: Exposure, assumed: Assumptions | None = None) -> tuple[GateForecast, ...]:
    """One for each gate and each source that counts for it."""
    assumed = assumed or Assumptions()
    pairs = [(gate, source) for gate in plan.gates for source in plan.sources_of(gate)]
    return tuple(forecast(plan, gate, source, exposure, assumed) for gate, source in pairs)


def forecast(plan: AnalysisPlan, gate: str, source: Source, exposure: Exposure, assumed: Assumptions) -> GateForecast:
    """One gate on one source, as yet without remedies."""
    kind, settings = tested_kinds()[gate], plan.settings[gate]
    if isinstance(kind, MonitoredGate):
        return kind.forecast(settings, source, exposure, assumed, plan.conditions)
    assert isinstance(kind, TestedGate), f"no sequential test asks {gate}"
    curve = power_curve_of(plan, kind, source, exposure, assumed)
    arrivals = exposure.arrivals(source, judged=kind.judged)
    return forecast_of(
        gate,
        source,
        exposure,
        arrivals,
        unit="pairs" if source == "probe" else "requests",
        scale=kind.scale,
        passes=max(curve.passes, kind.needed(settings) / arrivals.canary),
        regression=curve.effects[0],
        fails=curve.fails[0],
        smallest=curve.smallest,
    )


def power_curve_of(
    plan: AnalysisPlan, kind: TestedGate[Any], source: Source, exposure: Exposure, assumed: Assumptions
) -> PowerCurve:
    """When a gate's evidence suffices, whatever sample it asks for besides."""
    # The first test of a gate is what a regression shows itself in; its weight is part of the answer.
    weight = max(each.weight for each, _ in metric_tests(plan) if (each.gate, each.source) == (kind.name, source))
    return power_curve(
        kind,
        plan.settings[kind.name],
        exposure.arrivals(source, judged=kind.judged),
        assumed,
        paired=source == "probe",
        temper=plan.temper,
        log_pass=-math.log(plan.accept),
        log_fail=-math.log(plan.rollback * weight),
        within_seconds=exposure.within_seconds,
    )


MOST_PERCENT = 50
"""Of users: beyond, the stable arm becomes the one that tells too little."""
MOST_TIMES = 1000.0
"""Traffic beyond so many times the stated is not advice."""
MOST_PAIRS_PER_SECOND = 50.0
ADVICE_STEPS = 10


def with_remedy(plan: AnalysisPlan, found: GateForecast, exposure: Exposure, assumed: Assumptions) -> GateForecast:
    """The forecast with what would make it reachable; the same forecast when it is."""
    if found.reachable or found.source is None:
        return found
    search = _Search(plan, found.gate, found.source, exposure, assumed)
    return found.model_copy(update={"remedy": tuple(search.remedies())})


class _Search:
    """One gate on one source in one stage, and what would help it."""

    def __init__(self, plan: AnalysisPlan, gate: str, source: Source, exposure: Exposure, assumed: Assumptions) -> None:
        self._plan, self._gate, self._source = plan, gate, source
        self._kind, self._settings = tested_kinds()[gate], plan.settings[gate]
        self._exposure, self._assumed = exposure, assumed
        self._limit = exposure.within_seconds / LIKELY

    def remedies(self) -> Iterator[str]:
        longer = LIKELY * self._needs()
        if math.isfinite(longer):
            yield f"`within` of at least {round_up(longer)}"
        if self._source == "probe":
            pairs = self._exposure.pairs_per_second or 1.0
            enough = _least(self._moved("pairs_per_second"), pairs, MOST_PAIRS_PER_SECOND)
            yield from _say("at least {} pairs a second", enough)
        else:
            yield from _more_traffic(self._exposure, self._moved)
            yield from self._in_shadow()
        if isinstance(self._kind, TestedGate):
            yield from _wider(self._kind, self._settings, self._passes_with)

    def _in_shadow(self) -> Iterator[str]:
        """Where a user's request tells more, and harms nobody."""
        there = (self._kind.use_in("shadow") or StageUse("shadow")).sources
        if "probe" in there:
            words = f"the paired probe: {self._gate} in the shadow stage, with at least {{}} pairs a second"
            yield from _say(words, _least(self._moved("pairs_per_second", "probe"), 0.1, MOST_PAIRS_PER_SECOND))
        elif there and not self._exposure.mirrored:
            copies = self._exposure.model_copy(update={"mirrored": True})
            words = f"mirrored requests: {self._gate} in the shadow stage, with at least {{}} %"
            yield from _say(words, _least(lambda percent: self._passes(_with(copies, "percent", percent)), 1, 100))

    def _needs(self) -> float:
        """Seconds, at the stated traffic."""
        if not isinstance(self._kind, TestedGate):
            return self._monitor_passes(self._exposure, self._source)
        curve = power_curve_of(self._plan, self._kind, self._source, self._exposure, self._assumed)
        arrivals = self._exposure.arrivals(self._source, judged=self._kind.judged)
        return max(curve.passes, self._kind.needed(self._settings) / arrivals.canary)

    def _moved(self, field: str, by: Source | None = None) -> Callable[[float], bool]:
        return lambda value: self._passes(_with(self._exposure, field, value), by=by)

    def _passes(self, changed: Exposure, by: Source | None = None) -> bool:
        """Whether eight of ten healthy canaries would pass in time."""
        source = by or self._source
        if not isinstance(self._kind, TestedGate):
            return self._monitor_passes(changed, source) <= self._limit
        return self._suffices(self._kind, self._settings, changed, source)

    def _monitor_passes(self, exposure: Exposure, source: Source) -> float:
        assert isinstance(self._kind, MonitoredGate), f"no sequential test asks {self._gate}"
        passes = self._kind.passes(self._settings, source, exposure, self._assumed, self._plan.conditions)
        return told_by(passes, exposure.arrivals(source)) or math.inf

    def _passes_with(self, wanted: SpecModel) -> bool:
        assert isinstance(self._kind, TestedGate), f"{self._gate} has no margin to widen"
        return self._suffices(self._kind, wanted, self._exposure, self._source)

    def _suffices(self, kind: TestedGate[Any], settings: SpecModel, exposure: Exposure, source: Source) -> bool:
        arrivals = exposure.arrivals(source, judged=kind.judged)
        return kind.needed(settings) / arrivals.canary <= self._limit and passes_by(
            kind,
            settings,
            arrivals,
            self._assumed,
            paired=source == "probe",
            temper=self._plan.temper,
            log_pass=-math.log(self._plan.accept),
            limit_seconds=self._limit,
        )


def _with(exposure: Exposure, field: str, value: float) -> Exposure:
    return exposure.model_copy(update={field: value})


def _more_traffic(exposure: Exposure, moved: Callable[[str], Callable[[float], bool]]) -> Iterator[str]:
    most = 100 if exposure.mirrored else MOST_PERCENT
    whole = _least(lambda percent: moved("percent")(math.ceil(percent)), exposure.percent, most)
    what = "mirroring at least {} %" if exposure.mirrored else "a weight of at least {}"
    yield from _say(what, None if whole is None else math.ceil(whole))
    rate = exposure.requests_per_second
    if rate:
        yield from _say("at least {} requests a second", _least(moved("requests_per_second"), rate, rate * MOST_TIMES))


def _wider(kind: TestedGate[Any], settings: SpecModel, passes: Callable[[SpecModel], bool]) -> Iterator[str]:
    """A margin that can be proven in time."""
    if kind.margin is None:
        return
    field, most = kind.margin
    margin = _least(lambda value: passes(settings.model_copy(update={field: value})), getattr(settings, field), most)
    if margin is None:
        return
    if kind.scale == "percent":
        yield f"`{field}` of at least {math.ceil(margin * 100):g}%"
    elif kind.scale == "points":
        yield f"`{field}` of at least {two_digits(margin * 100):g}pp"
    else:
        yield f"`{field}` of at least {two_digits(margin):g}"


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


def _say(words: str, value: float | None) -> Iterator[str]:
    if value is not None:
        yield words.format(f"{two_digits(value):g}")


def two_digits(value: float) -> float:
    """Rounded up: what is advised must be enough."""
    scale = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(value / scale - 1e-6) * scale


def round_up(seconds: float) -> str:
    """A duration as specs write it, rounded up to what a person would write."""
    steps: Mapping[float, float] = {120: 10, 7200: 60, 86400: 600, math.inf: 3600}
    step = next(step for most, step in steps.items() if seconds <= most)
    return format_duration(timedelta(seconds=math.ceil(seconds / step) * step))
