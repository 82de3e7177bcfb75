"""What would let a gate reach its verdict in time: each change is searched for with the same expected traffic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta

from gates.planning.course import Settings, passes_by
from gates.planning.expected import Assumptions
from gates.planning.forecast import Exposure, GateForecast, told_by
from gates.planning.forecasts import LIKELY, course_of, needed, own_passes, settings_of
from gates.spec import ErrorsGate, LatencyGate, ScoresGate
from gates.terms import Source, Terms
from tidegate.core.quantities import format_duration

MOST_PERCENT = 50
"""Of users: beyond, the stable arm becomes the one that tells too little."""
MOST_TIMES = 1000.0
"""Traffic beyond so many times the stated is not advice."""
MOST_PAIRS_PER_SECOND = 50.0
SEARCH_STEPS = 10
OWN_STATISTICS = frozenset({"drift", "burn_rate"})


def with_remedy(terms: Terms, found: GateForecast, exposure: Exposure, assumed: Assumptions) -> GateForecast:
    """The forecast with what would make it reachable; the same forecast when it is."""
    if found.reachable or found.source is None:
        return found
    search = _Search(terms, found.gate, found.source, exposure, assumed)
    return found.model_copy(update={"remedy": tuple(search.remedies())})


class _Search:
    """One gate on one source in one stage, and what would help it."""

    def __init__(self, terms: Terms, gate: str, source: Source, exposure: Exposure, assumed: Assumptions) -> None:
        self._terms, self._gate, self._source = terms, gate, source
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
        if self._gate not in OWN_STATISTICS:
            yield from _wider(settings_of(self._terms, self._gate), self._passes_with)

    def _in_shadow(self) -> Iterator[str]:
        """Where a user's request tells more, and harms nobody."""
        if self._gate == "latency":
            words = "the paired probe: latency in the shadow stage, with at least {} pairs a second"
            yield from _say(words, _least(self._moved("pairs_per_second", "probe"), 0.1, MOST_PAIRS_PER_SECOND))
        elif self._gate == "errors" and not self._exposure.mirrored:
            copies = self._exposure.model_copy(update={"mirrored": True})
            words = "mirrored requests: errors in the shadow stage, with at least {} %"
            yield from _say(words, _least(lambda percent: self._passes(_with(copies, "percent", percent)), 1, 100))

    def _needs(self) -> float:
        """Seconds, at the stated traffic."""
        if self._gate in OWN_STATISTICS:
            return self._own_passes(self._exposure, self._source)
        course = course_of(self._terms, self._gate, self._source, self._exposure, self._assumed)
        arrivals = self._exposure.arrivals(self._gate, self._source)
        return max(course.passes, needed(settings_of(self._terms, self._gate)) / arrivals.canary)

    def _moved(self, field: str, by: Source | None = None) -> Callable[[float], bool]:
        return lambda value: self._passes(_with(self._exposure, field, value), by=by)

    def _passes(self, changed: Exposure, by: Source | None = None) -> bool:
        """Whether eight of ten healthy canaries would pass in time."""
        source = by or self._source
        if self._gate in OWN_STATISTICS:
            return self._own_passes(changed, source) <= self._limit
        return self._suffices(settings_of(self._terms, self._gate), changed, source)

    def _own_passes(self, exposure: Exposure, source: Source) -> float:
        passes = own_passes(self._terms, self._gate, source, exposure, self._assumed)
        return told_by(passes, exposure.arrivals(self._gate, source)) or math.inf

    def _passes_with(self, wanted: Settings) -> bool:
        return self._suffices(wanted, self._exposure, self._source)

    def _suffices(self, settings: Settings, exposure: Exposure, source: Source) -> bool:
        arrivals = exposure.arrivals(self._gate, source)
        return needed(settings) / arrivals.canary <= self._limit and passes_by(
            settings,
            arrivals,
            self._assumed,
            paired=source == "probe",
            temper=self._terms.temper,
            log_pass=-math.log(self._terms.accept),
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


def _wider(settings: Settings, passes: Callable[[Settings], bool]) -> Iterator[str]:
    """A margin that can be proven in time."""
    if isinstance(settings, LatencyGate | ErrorsGate):
        field, most = "max_increase", 4.0 if isinstance(settings, LatencyGate) else 0.5
    elif isinstance(settings, ScoresGate):
        field, most = "max_drop", 0.5
    else:
        return
    margin = _least(lambda value: passes(settings.model_copy(update={field: value})), getattr(settings, field), most)
    if margin is None:
        return
    if isinstance(settings, LatencyGate):
        yield f"`{field}` of at least {math.ceil(margin * 100):g}%"
    elif isinstance(settings, ErrorsGate):
        yield f"`{field}` of at least {two_digits(margin * 100):g}pp"
    else:
        yield f"`{field}` of at least {two_digits(margin):g}"


def _least(enough: Callable[[float], bool], low: float, high: float) -> float | None:
    """The least value that is enough, to a few percent; `low` is not. None when not even `high` is."""
    if low >= high or not enough(high):
        return None
    for _ in range(SEARCH_STEPS):
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
