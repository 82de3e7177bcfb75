"""The burn rate gate: whether a version spends its SLO's error budget too fast, with one chance of a false alarm.

Two things must come together for a fail. The share of bad events is above factor times the budget in the
short and in the long window of a pair: that is a burn as Google's SREs define it. And chance is an unlikely
reason, however often was asked: a binomial likelihood ratio against exactly that share, mixed over higher
shares and over the moment when it began, has reached 2 / rollback (each of both pairs has half the budget).
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, Field

from gates.analyses.base import Conditions, Monitor, MonitoredGate, StageUse, as_odds, as_ratio, pods_of
from gates.analyses.queries import PLACES, AsksPrometheus, QuerySource, Window, open_places, without
from gates.evidence.batch import ArmName, Batch, Buckets, Events, Times
from gates.model import ArmKey, GateOutcome, NoData, Sample, Verdict
from gates.stats.e_process import Array, Onset, Product
from gates.traffic import EARLY, ArrivalRates, Expected, WholeCounts
from tidegate.core.metrics import MetricSignal
from tidegate.core.model import Loc, SpecConflict, SpecModel
from tidegate.core.units import Duration, Percent, format_duration


def _template(query: str) -> str:
    if "window" not in open_places(query, ("window", *PLACES)):
        raise ValueError("a query with [{{.window}}], as in Sloth's events SLI")
    if re.search(r"\bincrease\s*\(", query):
        # Taken for events a second it would be as much evidence as the window has seconds.
        raise ValueError("events a second: rate() in place of increase()")
    return query


Query = Annotated[str, AfterValidator(_template)]


class BurnWindows(SpecModel):
    """A burn must be seen in both windows: in the long one to matter, in the short one to be going on still."""

    short: Duration = Field(gt=timedelta(0))
    long: Duration = Field(gt=timedelta(0))
    factor: float = Field(gt=1)
    """Times the speed that would spend exactly the whole budget over the SLO's own window."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """The short one is within the long one."""
        if self.short >= self.long:
            yield SpecConflict(("short",), format_duration(self.short), f"less than {format_duration(self.long)}")


class SlowerThan(SpecModel):
    """Events are answered requests; those that took longer are bad."""

    metric: Literal["ttft", "itl", "e2e"]
    """To the first token, between tokens (the mean of one request), to the last token."""
    than: Duration = Field(gt=timedelta(0))
    """An edge of the engine's histogram of that time: what lies between two edges, nobody can tell."""


LEAST_OBJECTIVE = 0.5
"""Nobody promises less: a burn of twice the budget would be more than all events."""


class BurnRateGate(AsksPrometheus, MonitoredGate):
    """No pair of windows may show a burn, and the budget's slow burn must be disproven."""

    name = "burn_rate"
    stages = (StageUse("shadow"), StageUse("canary"))
    usual_sources = ("proxy",)
    several = False

    slo: str | None = Field(default=None, min_length=1)
    """The name of an SLO that says the objective and what is counted. Anyone who knows SLOs looks it up before
    anything is judged: what is judged has an objective."""
    objective: Percent | None = Field(default=None, gt=0, lt=1)
    """The share of good events that the SLO promises: 99.9%."""
    slower: SlowerThan | None = None
    """What is bad, when it is no failed request: the canary's own times as its engines counted them."""
    errors_query: Query | None = None
    """PromQL for bad events. Without queries, the requests and errors of the canary that the proxy counted."""
    total_query: Query | None = None
    """PromQL for all events. Both give events a second, as Sloth's examples do."""
    # Factors: Google, The Site Reliability Workbook, chapter 5, table 5-8. There the windows are 1 h and 5 min, 6 h
    # and 30 min; a stage lasts minutes, so they are a twelfth of that, and each pair keeps its ratio of 12. A delivery
    # knows how long its stages last, and shrinks them further (`scaled_to`).
    fast: BurnWindows = BurnWindows(short=timedelta(seconds=25), long=timedelta(minutes=5), factor=14.4)
    slow: BurnWindows = BurnWindows(short=timedelta(seconds=150), long=timedelta(minutes=30), factor=6)
    min_events: Sample = 40
    """In the long window before a fail, and in all before a pass: three requests are no burn."""

    @property
    def budget(self) -> float:
        """The share of events that may be bad."""
        assert self.objective is not None, f"nobody has looked up the SLO {self.slo}"
        # Without the dust of 1 - 0.9: a bound of 14.399999 bad events is not what anybody means.
        return round(1 - self.objective, 12)

    def contradictions(self) -> Iterator[SpecConflict]:
        """An objective or an SLO that has one; one way to count; factors that some share of bad events can reach."""
        if self.slo is not None:
            for name in ("objective", "slower", "errors_query", "total_query"):
                if getattr(self, name) is not None:
                    yield SpecConflict((name,), "one next to `slo`", "either of both: the SLO says it already")
            return
        if self.objective is None:
            yield SpecConflict(("objective",), "nothing", "an objective, or the name of an SLO at `slo`")
            return
        if self.objective < LEAST_OBJECTIVE:
            yield SpecConflict(("objective",), f"{self.objective * 100:.12g}%", f"at least {LEAST_OBJECTIVE:.0%}")
            return
        if (self.errors_query is None) != (self.total_query is None):
            absent = "errors_query" if self.errors_query is None else "total_query"
            yield SpecConflict((absent,), "nothing", "a query, or neither of both")
        if self.slower and (self.errors_query or self.total_query):
            yield SpecConflict(("slower",), "times and queries", "one of both")
        yield from self.out_of_reach()

    def out_of_reach(self) -> Iterator[SpecConflict]:
        """Pairs whose factor not even a version with bad events only would come to."""
        for name, pair in (("fast", self.fast), ("slow", self.slow)):
            if pair.factor * self.budget >= 1:
                most = f"less than {1 / self.budget:g}: no more than all events can be bad"
                yield SpecConflict((name, "factor"), f"{pair.factor:g}", most)

    def signals(self) -> Mapping[Loc, MetricSignal]:
        """What it counts itself; of an SLO, and in queries, somebody else has said what is read."""
        if self.slo or self.total_query:
            return {}
        return {("slower",): MetricSignal(str(self.slower.metric))} if self.slower else {(): MetricSignal.REQUESTS}

    @property
    def asks(self) -> bool:
        return self.errors_query is not None

    def read(self, batch: Batch, gate: str, queries: QuerySource, arms: tuple[ArmKey, ArmKey], window: Window) -> Batch:
        """As `AsksPrometheus`; choose windows of three scrape intervals or more, or `rate` sees nothing."""
        _ = gate
        found = self._counted(queries, arms[1], window)
        return (
            without(batch, "events", found) if isinstance(found, NoData) else batch.model_copy(update={"events": found})
        )

    def _counted(self, queries: QuerySource, canary: ArmKey, window: Window) -> Events | NoData:
        assert self.total_query and self.errors_query, "asked without queries"
        total, bad = (queries.value(query, canary, window) for query in (self.total_query, self.errors_query))
        if isinstance(total, NoData):
            return total
        if isinstance(bad, NoData):
            # A query with a wrong label gives nothing as well; taken for 0, it would never see an error.
            return NoData(reason=f"{bad.reason}; end it with `or vector(0)` if no errors are no series")
        if min(total, bad) < 0:
            return NoData(reason=f"Prometheus answers {min(total, bad):g} to a query that counts events")
        counted = round(total * window.seconds)
        return Events(total=counted, bad=min(round(bad * window.seconds), counted))

    def monitor(self, conditions: Conditions) -> BurnRateMonitor:
        return BurnRateMonitor(self, rollback=conditions.rollback, accept=conditions.accept)

    def passes(self, expected: Expected, conditions: Conditions) -> float:
        # It is unknown how many requests are slow; an SLO that is kept leaves some of its budget.
        bad = self.budget / 2 if self.slower else min(expected.assumed.error_rate, self.budget)
        return _passes_at(self, expected.arrivals, bad, conditions.rollback, conditions.accept)


def scaled_to(gate: BurnRateGate, stage: timedelta, *, look: timedelta, written: Container[str] = ()) -> BurnRateGate:
    """The gate with its longest window as long as the stage and the others in proportion.

    Pairs that are `written` out, of `fast` and `slow`, stay as they are. A window shorter than one `look` at the
    evidence would be that look all the same, so none is.
    """
    pairs = {name: pair for name, pair in (("fast", gate.fast), ("slow", gate.slow)) if name not in written}
    longest = max((pair.long for pair in pairs.values()), default=stage)
    return gate.model_copy(update={name: _scaled(pair, stage / longest, look) for name, pair in pairs.items()})


def _scaled(windows: BurnWindows, shrink: float, look: timedelta) -> BurnWindows:
    short = max(windows.short * shrink, look)
    # The short window must end a burn sooner than the long one does.
    return BurnWindows(short=short, long=max(windows.long * shrink, 2 * short), factor=windows.factor)


BURNING_ODDS = (1.5, 3.0, 10.0, 100.0)
"""Alternatives to the share that is just no burn, as odds; violent burns are told as fast as slow ones."""
FINE_ODDS = (0.8, 0.5, 0.2, 0.02)
EVEN = (0.25, 0.25, 0.25, 0.25)


@dataclass(frozen=True)
class _Pair:
    """A pair of windows, and the evidence that its burn is no chance."""

    name: str
    windows: BurnWindows
    bound: float
    """The share of bad events that is just no burn."""
    worse: Onset


class BurnRateMonitor(Monitor):
    """Takes looks, answers verdicts; the same looks always give the same verdicts."""

    def __init__(self, settings: BurnRateGate, *, rollback: float = 0.01, accept: float = 0.05) -> None:
        """`rollback` is the chance of a fail without a burn, over all looks; `accept` that of a pass within one."""
        self._gate, self._log_fail, self._log_pass = settings, math.log(2 / rollback), -math.log(accept)
        self._pairs = tuple(
            _Pair(name, each, each.factor * settings.budget, Onset(EVEN))
            for name, each in (("fast", settings.fast), ("slow", settings.slow))
        )
        # Not to burn is not to burn slowly either.
        self._calm, self._calm_bound = Product(EVEN), min(pair.bound for pair in self._pairs)
        self._log_calm_best = -math.inf
        """The clearest evidence so far that nothing burns."""
        self._recent: deque[tuple[float, Events]] = deque()
        """The looks within the longest window."""
        self._all = Events(total=0, bad=0)
        self._time = -math.inf
        self._silence = "nothing was asked yet"
        self._failed: Verdict | None = None

    def take(self, batch: Batch, seconds: float) -> None:
        """Learn of requests, their times, or what the SLO's queries counted."""
        if self._gate.slower:
            events = slow_events_of(batch, ArmName.CANARY, self._gate.slower)
        elif self._gate.errors_query:
            events = batch.events or NoData(reason=batch.missing.get("events", "the SLO's queries were not asked"))
        else:
            events = events_of(batch, ArmName.CANARY)
        self.look(batch.time, seconds, events)

    def look(self, time: float, seconds: float, events: Events | NoData) -> None:
        """Learn from one look, so many seconds after the one before."""
        self._time = time
        longest = max(pair.windows.long for pair in self._pairs).total_seconds()
        while self._recent and self._recent[0][0] <= time - longest:
            self._recent.popleft()
        self._silence = events.reason if isinstance(events, NoData) else ""
        if isinstance(events, NoData):
            return
        self._recent.append((time, events))
        self._all = summed((self._all, events))
        self._calm.feed(_log_ratio(self._calm_bound, FINE_ODDS, events))
        self._log_calm_best = max(self._log_calm_best, float(self._calm.log_evidence))
        for pair in self._pairs:
            pair.worse.feed(_log_ratio(pair.bound, BURNING_ODDS, events), seconds)
            self._failed = self._failed or self._fail(pair)

    def restart(self) -> None:
        """An error budget does not care at which weight it was spent."""

    def verdict(self, *, deadline_passed: bool = False) -> Verdict:
        """As of the last look; a burn that was proven stays one."""
        if self._failed:
            return self._failed
        so_far = f"{self._all.bad:,} of {self._all.total:,} events were bad"
        if self._is_fine():
            return self._says(GateOutcome.PASS, f"{so_far}: evidence {as_odds(self._log_calm_best)} that it is no burn")
        outcome = GateOutcome.INCONCLUSIVE if deadline_passed else GateOutcome.RUNNING
        if self._silence:
            return self._says(outcome, f"no events: {self._silence}")
        if burning := [pair for pair in self._pairs if self._is_burning(pair)]:
            return self._says(outcome, f"{self._burns(burning[0])}, which may be chance still")
        needed = f"{math.exp(self._log_pass):,.0f}:1 and {self._gate.min_events:,} events needed"
        odds = as_odds(float(self._calm.log_evidence))
        return self._says(outcome, f"{so_far}: evidence {odds} that it is no burn ({needed})")

    def _fail(self, pair: _Pair) -> Verdict | None:
        enough = self._within(pair.windows.long).total >= self._gate.min_events
        log_evidence = float(pair.worse.log_evidence)
        if not (enough and self._is_burning(pair) and log_evidence >= self._log_fail):
            return None
        return self._says(
            GateOutcome.FAIL, f"{self._burns(pair)}: evidence {as_odds(log_evidence)} that it is no chance"
        )

    def _is_fine(self) -> bool:
        shown = self._log_calm_best >= self._log_pass and float(self._calm.log_evidence) >= 0
        # Who has no traffic now shows nothing, whatever was shown before.
        present = not self._silence and self._within(self._gate.fast.short).total > 0
        enough = self._all.total >= self._gate.min_events
        return shown and present and enough and not any(self._is_burning(pair) for pair in self._pairs)

    def _is_burning(self, pair: _Pair) -> bool:
        """Whether the bad share is above the bound in both windows, by chance or not."""
        found = (self._within(window) for window in (pair.windows.short, pair.windows.long))
        return all(events.bad > pair.bound * events.total for events in found)

    def _within(self, window: timedelta) -> Events:
        """What happened in the window that ends with the last look; a look that began before it counts whole."""
        since = self._time - window.total_seconds()
        return summed(events for time, events in self._recent if time > since)

    def _rate(self, window: timedelta) -> float:
        events = self._within(window)
        return events.bad / events.total / self._gate.budget if events.total else 0.0

    def _burns(self, pair: _Pair) -> str:
        windows, of = pair.windows, f" of {self._gate.slo}" if self._gate.slo else ""
        return (
            f"spends the error budget{of} {self._rate(windows.short):.3g} times too fast in "
            f"{format_duration(windows.short)} and {self._rate(windows.long):.3g} times in "
            f"{format_duration(windows.long)} (allowed {windows.factor:g})"
        )

    def _says(self, outcome: GateOutcome, reason: str) -> Verdict:
        numbers = {"events": float(self._all.total), "bad_events": float(self._all.bad)}
        for pair in self._pairs:
            numbers |= {
                f"{pair.name}_short_burn_rate": self._rate(pair.windows.short),
                f"{pair.name}_long_burn_rate": self._rate(pair.windows.long),
                f"{pair.name}_evidence": as_ratio(float(pair.worse.log_evidence)),
            }
        numbers |= {"evidence_needed": math.exp(self._log_fail), "evidence_fine": as_ratio(self._log_calm_best)}
        return Verdict(gate=self._gate.name, outcome=outcome, reason=reason, numbers=numbers)


def summed(events: Iterable[Events]) -> Events:
    """All of them together."""
    found = list(events)
    return Events(total=sum(each.total for each in found), bad=sum(each.bad for each in found))


def _log_ratio(bound: float, odds: tuple[float, ...], events: Events) -> Array:
    """Of shares with so many times the odds of the bound, against the bound; its mean is at most 1 if that holds."""
    shares = np.asarray(odds) * bound / (1 - bound + np.asarray(odds) * bound)
    good = events.total - events.bad
    return np.asarray(events.bad * np.log(shares / bound) + good * (np.log1p(-shares) - math.log1p(-bound)))


def slow_events_of(batch: Batch, arm: ArmName, slower: SlowerThan) -> Events | NoData:
    """The answered requests of one arm as events of an SLO on their times; bad are those that took longer."""
    told = [times for pod in batch.arms if pod.arm is arm and (times := getattr(pod, slower.metric))]
    if not told:
        return NoData(
            reason=batch.missing.get(slower.metric, f"nothing is known of the {slower.metric} of the {arm} arm")
        )
    found = [_slower_than(times, slower.than.total_seconds()) for times in told]
    missing = next((each for each in found if isinstance(each, NoData)), None)
    return missing or summed(each for each in found if isinstance(each, Events))


def _slower_than(times: Times, seconds: float) -> Events | NoData:
    if not isinstance(times, Buckets):
        return Events(total=len(times), bad=sum(each > seconds for each in times))
    if seconds not in times.edges:
        return NoData(reason=f"the histogram has no edge at {seconds:g} s")
    above = times.counts[times.edges.index(seconds) + 1 :]
    return Events(total=sum(times.counts), bad=sum(above))


def events_of(batch: Batch, arm: ArmName) -> Events | NoData:
    """The requests of one arm as events of an availability SLO: errors are bad, refusals (4xx) are no events at all.

    Counted as good, a flood of refusals would hide an outage.
    """
    pods = pods_of(batch, arm)
    if not pods or ("requests" in batch.missing and not any(pod.requests for pod in pods)):
        return NoData(reason=batch.missing.get("requests", f"nothing is known of the {arm} arm"))
    return Events(total=sum(pod.requests - pod.refused for pod in pods), bad=sum(pod.errors for pod in pods))


SINGLE_LOOKS = 40
GROWTH = 1.05
"""Of looks after these: what is decided late need not be known to the second."""
FURTHEST_SECONDS = 2 * 86400.0


@lru_cache(maxsize=1024)
def _passes_at(settings: BurnRateGate, arrivals: ArrivalRates, bad: float, rollback: float, accept: float) -> float:
    """When expected events, of which so large a share is bad, bring a pass; infinity for never."""
    burn, whole = BurnRateMonitor(settings, rollback=rollback, accept=accept), WholeCounts((2,))
    elapsed, seconds = 0.0, arrivals.look
    while elapsed < FURTHEST_SECONDS:
        elapsed += seconds
        fine, failed = whole.of(np.asarray([1 - bad, bad]) * arrivals.canary * seconds)
        burn.look(elapsed, seconds, Events(total=int(fine + failed), bad=int(failed)))
        found = burn.verdict().outcome
        if found is GateOutcome.PASS:
            return elapsed * EARLY
        if found is GateOutcome.FAIL:
            return math.inf
        seconds *= GROWTH if elapsed > SINGLE_LOOKS * arrivals.look else 1.0
    return math.inf
