"""Asks whether a version spends its SLO's error budget too fast, after every look, with one chance of a false alarm.

Two things must come together for a fail. The share of bad events is above factor times the budget in the
short and in the long window of a pair: that is a burn as Google's SREs define it. And chance is an unlikely
reason, however often was asked: a binomial likelihood ratio against exactly that share, mixed over higher
shares and over the moment when it began, has reached 2 / rollback (each of both pairs has half the budget).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import timedelta

from gates.burn.evidence import Calm, Events, Look, Pair, Recent, summed
from gates.burn.spec import BurnRateGate, SlowerThan
from gates.evidence import Arm, Batch, Buckets, Times
from gates.model import NoData, Outcome, Verdict
from gates.questions.base import as_odds, as_ratio
from tidegate.core.errors import UsageError
from tidegate.core.quantities import format_duration

GATE = "burn_rate"


class Burn:
    """Takes looks, answers verdicts; the same looks always give the same verdicts."""

    def __init__(self, gate: BurnRateGate, *, rollback: float = 0.01, accept: float = 0.05) -> None:
        """`rollback` is the chance of a fail without a burn, over all looks; `accept` that of a pass within one."""
        self._gate, self._log_fail, self._log_pass = gate, math.log(2 / rollback), -math.log(accept)
        self._pairs = (Pair(gate.fast, gate.budget), Pair(gate.slow, gate.budget))
        # Not to burn is not to burn slowly either.
        self._calm = Calm(min(pair.bound for pair in self._pairs))
        self._recent = Recent(max(pair.windows.long for pair in self._pairs))
        self._all = Events(total=0, bad=0)
        self._time = -math.inf
        self._silence = "nothing was asked yet"
        self._failed: Verdict | None = None

    def take(self, look: Look) -> None:
        """Learn from one look.

        Raises:
            UsageError: when it is not later than the last one; nothing was learnt then.
        """
        if look.time <= self._time:
            raise UsageError(f"a look at {look.time:.3f} came after one at {self._time:.3f}")
        self._time = look.time
        if isinstance(look.events, NoData):
            self._silence = look.events.reason
            self._recent.take(look.time, None)
            return
        self._silence = ""
        self._recent.take(look.time, look.events)
        self._all = summed((self._all, look.events))
        self._calm.feed(look.events)
        for pair in self._pairs:
            pair.feed(look.events, look.seconds)
            self._failed = self._failed or self._fail(pair)

    def verdict(self, *, deadline_passed: bool = False) -> Verdict:
        """As of the last look; a burn that was proven stays one."""
        if self._failed:
            return self._failed
        so_far = f"{self._all.bad:,} of {self._all.total:,} events were bad"
        if self._is_fine():
            return self._says(Outcome.PASS, f"{so_far}: evidence {as_odds(self._calm.log_best)} that it is no burn")
        outcome = Outcome.INCONCLUSIVE if deadline_passed else Outcome.RUNNING
        if self._silence:
            return self._says(outcome, f"no events: {self._silence}")
        if burning := [pair for pair in self._pairs if pair.is_burning(self._recent)]:
            return self._says(outcome, f"{self._burns(burning[0])}, which may be chance still")
        needed = f"{math.exp(self._log_pass):,.0f}:1 and {self._gate.min_events:,} events needed"
        odds = as_odds(self._calm.log_evidence)
        return self._says(outcome, f"{so_far}: evidence {odds} that it is no burn ({needed})")

    def _fail(self, pair: Pair) -> Verdict | None:
        enough = self._recent.within(pair.windows.long).total >= self._gate.min_events
        if not (enough and pair.is_burning(self._recent) and pair.log_evidence >= self._log_fail):
            return None
        odds = as_odds(pair.log_evidence)
        return self._says(Outcome.FAIL, f"{self._burns(pair)}: evidence {odds} that it is no chance")

    def _is_fine(self) -> bool:
        shown = self._calm.log_best >= self._log_pass and self._calm.log_evidence >= 0
        # Who has no traffic now shows nothing, whatever was shown before.
        present = not self._silence and self._recent.within(self._gate.fast.short).total > 0
        enough = self._all.total >= self._gate.min_events
        return shown and present and enough and not any(pair.is_burning(self._recent) for pair in self._pairs)

    def _rate(self, window: timedelta) -> float:
        events = self._recent.within(window)
        return events.bad / events.total / self._gate.budget if events.total else 0.0

    def _burns(self, pair: Pair) -> str:
        windows = pair.windows
        short, long = (f"{self._rate(each):.3g}" for each in (windows.short, windows.long))
        of = f" of {self._gate.slo}" if self._gate.slo else ""
        return (
            f"spends the error budget{of} {short} times too fast in {format_duration(windows.short)} "
            f"and {long} times in {format_duration(windows.long)} (allowed {windows.factor:g})"
        )

    def _says(self, outcome: Outcome, reason: str) -> Verdict:
        numbers = {"events": float(self._all.total), "bad_events": float(self._all.bad)}
        for name, pair in zip(("fast", "slow"), self._pairs, strict=True):
            numbers |= {
                f"{name}_short_burn_rate": self._rate(pair.windows.short),
                f"{name}_long_burn_rate": self._rate(pair.windows.long),
                f"{name}_evidence": as_ratio(pair.log_evidence),
            }
        numbers |= {"evidence_needed": math.exp(self._log_fail), "evidence_fine": as_ratio(self._calm.log_best)}
        return Verdict(gate=GATE, outcome=outcome, reason=reason, numbers=numbers)


def judge_burn_rate(
    gate: BurnRateGate,
    looks: Iterable[Look],
    *,
    rollback: float = 0.01,
    accept: float = 0.05,
    deadline_passed: bool = False,
) -> Verdict:
    """What all looks together say, in the order in which they were made."""
    burn = Burn(gate, rollback=rollback, accept=accept)
    for look in looks:
        burn.take(look)
    return burn.verdict(deadline_passed=deadline_passed)


def slow_events_of(batch: Batch, arm: Arm, slower: SlowerThan) -> Events | NoData:
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


def events_of(batch: Batch, arm: Arm) -> Events | NoData:
    """The requests of one arm as events of an availability SLO: errors are bad, refusals (4xx) are no events at all.

    Counted as good, a flood of refusals would hide an outage.
    """
    pods = [pod for pod in batch.arms if pod.arm is arm]
    if not pods or ("requests" in batch.missing and not any(pod.requests for pod in pods)):
        return NoData(reason=batch.missing.get("requests", f"nothing is known of the {arm} arm"))
    return Events(total=sum(pod.requests - pod.refused for pod in pods), bad=sum(pod.errors for pod in pods))
