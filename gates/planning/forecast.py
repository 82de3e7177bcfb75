"""What a gate will typically do, told before anything is deployed, and what would let it reach its verdict in time.

After how many requests, and when, it says yes to a healthy canary; how soon it catches a regression of the
margin's size; and which regressions it cannot see in the time it is given. Each proposal is searched for, and checked,
by the same forecast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Literal

from gates.analyses.base import MonitoredGate, StageUse, TestedGate
from gates.evidence.batch import Source
from gates.planning.power import PowerCurve, passes_by, power_curve
from gates.sequential_test import AnalysisPlan, metric_tests
from gates.traffic import Assumptions, Change, Exposure, GateForecast, Proposal, Unit, forecast_of, told_by
from tidegate.core.units import format_duration, parse_duration

UNITS: Mapping[Source, Unit] = {"probe": "pairs", "load": "blocks"}


def forecasts(plan: AnalysisPlan, exposure: Exposure, assumed: Assumptions | None = None) -> tuple[GateForecast, ...]:
    """One for each gate and each source that counts for it."""
    assumed = assumed or Assumptions()
    pairs = [(gate, source) for gate in plan.gates for source in plan.sources_of(gate)]
    return tuple(forecast(plan, gate, source, exposure, assumed) for gate, source in pairs)


def forecast(plan: AnalysisPlan, gate: str, source: Source, exposure: Exposure, assumed: Assumptions) -> GateForecast:
    """One gate on one source, as yet without proposals."""
    settings = plan.settings[gate]
    if isinstance(settings, MonitoredGate):
        found = settings.forecast(source, exposure, assumed, plan.conditions)
        return found.model_copy(update={"gate": gate})
    assert isinstance(settings, TestedGate), f"no sequential test asks {gate}"
    curve = power_curve_of(plan, gate, source, exposure, assumed)
    arrivals = exposure.arrivals(source, judged=settings.judged)
    return forecast_of(
        gate,
        source,
        exposure,
        arrivals,
        unit=UNITS.get(source, "requests"),
        scale=settings.scale,
        passes=max(curve.passes, settings.needed() / arrivals.canary),
        regression=curve.effects[0],
        fails=curve.fails[0],
        smallest=curve.smallest,
    )


def power_curve_of(
    plan: AnalysisPlan, gate: str, source: Source, exposure: Exposure, assumed: Assumptions
) -> PowerCurve:
    """When a gate's evidence suffices, whatever sample it asks for besides."""
    settings = plan.settings[gate]
    assert isinstance(settings, TestedGate), f"no sequential test asks {gate}"
    # The first test of a gate is what a regression shows itself in; its weight is part of the answer.
    weight = max(each.weight for each, _ in metric_tests(plan) if (each.gate, each.source) == (gate, source))
    return power_curve(
        settings,
        exposure.arrivals(source, judged=settings.judged),
        assumed,
        paired=exposure.pairs(source),
        temper=plan.temper,
        log_pass=-math.log(plan.accept),
        log_fail=-math.log(plan.rollback * weight),
        within_seconds=exposure.within_seconds,
    )


LIKELY = 1.5
"""Eight of ten healthy canaries have passed by so many times the typical time. Measured: 1.0 to 1.8 times."""
MOST_PERCENT = 50
"""Of users: beyond, the stable arm becomes the one that tells too little."""
MOST_TIMES = 1000.0
"""Traffic beyond so many times the stated is not advice."""
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


def with_proposals(plan: AnalysisPlan, found: GateForecast, exposure: Exposure, assumed: Assumptions) -> GateForecast:
    """The forecast with what would make it reachable; the same forecast when it is."""
    if found.reachable or found.source is None:
        return found
    proposals = tuple(_Search(plan, found.gate, found.source, exposure, assumed).proposals())
    return found.model_copy(update={"proposals": proposals, "remedy": tuple(each.words for each in proposals)})


class _Search:
    """One gate on one source in one stage, and what would help it."""

    def __init__(self, plan: AnalysisPlan, gate: str, source: Source, exposure: Exposure, assumed: Assumptions) -> None:
        self._plan, self._gate, self._source = plan, gate, source
        self._settings = plan.settings[gate]
        self._exposure, self._assumed = exposure, assumed
        self._limit = exposure.within_seconds / LIKELY

    def proposals(self) -> Iterator[Proposal]:
        yield from self._longer()
        if self._source == "probe":
            least = self._exposure.pairs_per_second or 1.0
            yield from self._of("pairs_per_second", "at least {} pairs a second", least, MOST_PAIRS_PER_SECOND)
        elif self._source != "load":
            yield from self._more_traffic()
            yield from self._in_shadow()
        if isinstance(self._settings, TestedGate):
            yield from self._wider(self._settings)

    def _longer(self) -> Iterator[Proposal]:
        needs = self._needs(self._exposure, self._source)
        if math.isfinite(needs):
            words = round_up(LIKELY * needs)
            seconds = parse_duration(words).total_seconds()
            yield self._proposal("within", seconds, f"`within` of at least {words}", self._exposure)

    def _more_traffic(self) -> Iterator[Proposal]:
        copied = self._exposure.mirrored
        what = "mirroring at least {} %" if copied else "a weight of at least {}"
        yield from self._of("percent", what, self._exposure.percent, 100 if copied else MOST_PERCENT, rounded=math.ceil)
        if rate := self._exposure.requests_per_second:
            yield from self._of("requests_per_second", "at least {} requests a second", rate, rate * MOST_TIMES)

    def _in_shadow(self) -> Iterator[Proposal]:
        """Where a user's request tells more, and harms nobody."""
        there = (self._settings.use_in("shadow") or StageUse("shadow")).sources
        if "probe" in there and self._source != "samples":
            words = f"the paired probe: {self._gate} in the shadow stage, with at least {{}} pairs a second"
            yield from self._of("pairs_per_second", words, 0.1, MOST_PAIRS_PER_SECOND, told="probe", by="probe")
        elif there and not self._exposure.mirrored:
            words = f"mirrored requests: {self._gate} in the shadow stage, with at least {{}} %"
            copies = self._exposure.model_copy(update={"mirrored": True})
            yield from self._of("percent", words, 1, 100, told="mirror", rounded=math.ceil, around=copies)

    def _of(
        self,
        field: Literal["percent", "requests_per_second", "pairs_per_second"],
        words: str,
        low: float,
        high: float,
        *,
        told: Change | None = None,
        by: Source | None = None,
        rounded: Callable[[float], float] = two_digits,
        around: Exposure | None = None,
    ) -> Iterator[Proposal]:
        """The least value of a field of the exposure that is enough, rounded up to what a person would write."""
        source = by or self._source

        def exposed(value: float) -> Exposure:
            return (around or self._exposure).model_copy(update={field: rounded(value)})

        value = _least(lambda value: self._passes(exposed(value), source), low, high)
        if value is not None:
            said = words.format(f"{rounded(value):g}")
            yield self._proposal(told or field, rounded(value), said, exposed(value), source)

    def _wider(self, settings: TestedGate) -> Iterator[Proposal]:
        """A margin that can be proven in time."""
        if settings.margin is None:
            return
        field, most = settings.margin

        def wider(value: float) -> TestedGate:
            return settings.model_copy(update={field: _rounded_margin(settings, value)})

        now = getattr(settings, field)
        least = _least(lambda value: self._suffices(wider(value), self._exposure, self._source), now, most)
        if least is not None:
            value = _rounded_margin(settings, least)
            passes = self._needs(self._exposure, self._source, wider(least))
            text = settings.written(value)
            yield Proposal(
                change="margin",
                value=value,
                words=f"`{field}` of at least {text}",
                seconds_to_pass=self._told(passes, self._exposure, self._source),
                setting=field,
                written=text,
            )

    def _proposal(
        self, change: Change, value: float, words: str, exposure: Exposure, source: Source | None = None
    ) -> Proposal:
        source = source or self._source
        told = self._told(self._needs(exposure, source), exposure, source)
        return Proposal(change=change, value=value, words=words, seconds_to_pass=told)

    def _told(self, passes: float, exposure: Exposure, source: Source) -> float | None:
        timed = exposure.timed(source)
        return told_by(passes, exposure.arrivals(source, judged=self._settings.judged)) if timed else None

    def _needs(self, exposure: Exposure, source: Source, settings: TestedGate | None = None) -> float:
        """Seconds until half of all healthy canaries have passed."""
        wanted = settings or self._settings
        if not isinstance(wanted, TestedGate):
            return self._monitor_passes(exposure, source)
        asked = {
            "settings": {**self._plan.settings, self._gate: wanted},
            "sources": {**self._plan.sources, self._gate: (source,)},
        }
        plan = self._plan.model_copy(update=asked)
        curve = power_curve_of(plan, self._gate, source, exposure, self._assumed)
        arrivals = exposure.arrivals(source, judged=wanted.judged)
        return max(curve.passes, wanted.needed() / arrivals.canary)

    def _passes(self, changed: Exposure, source: Source) -> bool:
        """Whether eight of ten healthy canaries would pass in time."""
        if not isinstance(self._settings, TestedGate):
            return self._monitor_passes(changed, source) <= self._limit
        return self._suffices(self._settings, changed, source)

    def _monitor_passes(self, exposure: Exposure, source: Source) -> float:
        assert isinstance(self._settings, MonitoredGate), f"no sequential test asks {self._gate}"
        arrivals = exposure.arrivals(source)
        return told_by(self._settings.passes(arrivals, self._assumed, self._plan.conditions), arrivals) or math.inf

    def _suffices(self, settings: TestedGate, exposure: Exposure, source: Source) -> bool:
        arrivals = exposure.arrivals(source, judged=settings.judged)
        return settings.needed() / arrivals.canary <= self._limit and passes_by(
            settings,
            arrivals,
            self._assumed,
            paired=exposure.pairs(source),
            temper=self._plan.temper,
            log_pass=-math.log(self._plan.accept),
            limit_seconds=self._limit,
        )


def _rounded_margin(settings: TestedGate, value: float) -> float:
    """Up to what a person would write."""
    in_percent = settings.scale in ("percent", "cost", "change")
    return math.ceil(value * 100 - 1e-6) / 100 if in_percent else two_digits(value)


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
