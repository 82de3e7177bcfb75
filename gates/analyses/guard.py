"""Watches one number of a query against fixed bounds, such as a database's share of errors: a guard, and no test.

Looked at often enough, a number that wanders is seen beyond any bound in the end, and no share of an error budget
says how often. So a guard has patience in its place, like `for` of an alerting rule: it fails only when the number was
out of bounds at every look for so long, and passes only when it was within at every look for so long. How often that
errs, only the number's own history tells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from gates.analyses.base import Conditions, Monitor, MonitoredGate, StageUse
from gates.analyses.queries import PLACES, PrometheusGate, QuerySource, Window, open_places, without
from gates.evidence.batch import Batch
from gates.model import ArmKey, GateOutcome, NoData, Verdict
from gates.traffic import Expected
from tidegate.core.model import SpecConflict
from tidegate.core.units import Duration, format_duration


def _query(text: str) -> str:
    open_places(text, ("window", *PLACES))
    return text


Bound = Annotated[float, Field(allow_inf_nan=False)]


class GuardGate(PrometheusGate, MonitoredGate):
    """A query's number has to stay within bounds, whichever version is why it does not."""

    name = "query"
    stages = (StageUse("shadow", ("proxy",)), StageUse("canary", ("proxy",)))
    bounded = False
    by_looks = True
    presets: ClassVar = {
        "vllm-kv-cache": {"query": "max(vllm:kv_cache_usage_perc{{ARM}})", "max": 0.95},
        "vllm-preemptions": {"query": "sum(rate(vllm:num_preemptions_total{{ARM}}[1m]))", "max": 0.1},
    }

    query: Annotated[str, AfterValidator(_query)] = Field(default="", validate_default=False)
    """PromQL of one number; may leave open `{{.window}}`, `{{.region}}`, `{{.role}}` and `{{.version}}` of the
    canary."""
    max: Bound | None = None
    """The number may be this at most."""
    min: Bound | None = None
    """The number must be this at least."""
    broken_for: Duration = Field(default=timedelta(minutes=1), ge=timedelta(0))
    """The gate fails when it was out of bounds at every look for so long."""
    held_for: Duration = Field(default=timedelta(minutes=1), ge=timedelta(0))
    """The gate passes when it was within at every look for so long; after a change of weight, from there on."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """A query, and bounds that some number can be within."""
        if not self.query:
            yield SpecConflict(("query",), "nothing", "PromQL of one number, or a preset")
        if self.max is None and self.min is None:
            yield SpecConflict(("max",), "nothing", "a bound: max, min, or both")
        if self.max is not None and self.min is not None and self.min > self.max:
            yield SpecConflict(("min",), f"{self.min:g}", f"at most max, {self.max:g}")

    def within(self, value: float) -> bool:
        """Whether the number is within both bounds."""
        return (self.max is None or value <= self.max) and (self.min is None or value >= self.min)

    @property
    def bounds(self) -> str:
        """As a person says them."""
        said = ((word, bound) for word, bound in (("at least", self.min), ("at most", self.max)) if bound is not None)
        return " and ".join(f"{word} {bound:g}" for word, bound in said)

    def read(self, batch: Batch, gate: str, queries: QuerySource, arms: tuple[ArmKey, ArmKey], window: Window) -> Batch:
        found = queries.value(self.query, arms[1], window)
        if isinstance(found, NoData):
            return without(batch, gate, found)
        return batch.model_copy(update={"measured": {**batch.measured, gate: found}})

    def monitor(self, conditions: Conditions) -> GuardMonitor:
        return GuardMonitor(self, conditions.gate)

    def passes(self, expected: Expected, conditions: Conditions) -> float:
        _ = conditions
        # A first look, and so many more that it lasted.
        looks = 1 + max(math.ceil(self.held_for.total_seconds() / expected.arrivals.look - 1e-6), 1)
        return looks * expected.arrivals.look


class GuardMonitor(Monitor):
    """How long the number has been within its bounds, or out of them, look by look."""

    def __init__(self, settings: GuardGate, name: str) -> None:
        """`name` is that of the gate, under which batches have its number."""
        self._gate, self._name = settings, name
        self._value = math.nan
        self._streak: tuple[float, float] | None = None
        """The first and the last look of those without a break at which it was on the same side of its bounds."""
        self._silence = "nothing was asked yet"
        self._failed: Verdict | None = None

    def take(self, batch: Batch, seconds: float) -> None:
        """Learn from one batch; one without the number is the end of every streak."""
        _ = seconds
        value = batch.measured.get(self._name)
        if value is None:
            self._streak = None
            self._silence = batch.missing.get(self._name, "the query was not asked")
            return
        goes_on = self._streak and self._gate.within(value) == self._within
        self._value, self._silence = value, ""
        self._streak = (self._streak[0] if self._streak and goes_on else batch.time, batch.time)
        if self._failed is None and not self._within and self._lasted(self._gate.broken_for):
            self._failed = self._says(GateOutcome.FAIL, f"out of bounds for {self._length}")

    def restart(self) -> None:
        """Traffic is shared out again: that it stays within is to be seen again."""
        self._streak = None if self._within else self._streak

    def verdict(self, *, deadline_passed: bool) -> Verdict:
        if self._failed:
            return self._failed
        waiting = GateOutcome.INCONCLUSIVE if deadline_passed else GateOutcome.RUNNING
        if self._silence:
            return Verdict(gate=self._name, outcome=waiting, reason=f"no number: {self._silence}")
        if not self._within:
            patience = format_duration(self._gate.broken_for)
            return self._says(waiting, f"out of bounds for {self._length}, {patience} fail")
        if self._lasted(self._gate.held_for):
            return self._says(GateOutcome.PASS, f"within at every look for {self._length}")
        asked = format_duration(self._gate.held_for)
        return self._says(waiting, f"within at every look for {self._length}, {asked} are asked for")

    def _says(self, outcome: GateOutcome, reason: str) -> Verdict:
        gate, held = self._gate, self._seconds if self._within else 0.0
        numbers = {"value": self._value, "held_seconds": held, "broken_seconds": self._seconds - held}
        numbers |= {name: bound for name, bound in (("max", gate.max), ("min", gate.min)) if bound is not None}
        text = f"the query gives {self._value:.4g}, which may be {gate.bounds}: {reason}"
        return Verdict(gate=self._name, outcome=outcome, reason=text, numbers=numbers)

    @property
    def _within(self) -> bool:
        return self._gate.within(self._value)

    @property
    def _seconds(self) -> float:
        return self._streak[1] - self._streak[0] if self._streak else 0.0

    @property
    def _length(self) -> str:
        return format_duration(timedelta(seconds=round(self._seconds))) if self._seconds >= 0.5 else "0s"

    def _lasted(self, least: timedelta) -> bool:
        """Whether the streak lasts so long; one look alone never does, however short that is."""
        return self._seconds > 0 and self._seconds >= least.total_seconds()
