"""The sequential test: one canary next to one stable, judged after every batch of evidence until there is a verdict.

Its analysis plan is everything that decides how evidence is judged, fixed before there is any. Changing a margin, a
weight or a source after data were seen would void every guarantee. So the plan is frozen as JSON, and a replay is the
same plan with the same batches.

The test fails when the weighted mean of the evidence that something is worse reaches 1 / rollback: the mean of
e-processes is an e-process, so the budget holds for all tests and polls together. A gate passes when
each of its tests has shown with evidence 1 / accept that the canary is within its margin.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, SerializeAsAny, SerializerFunctionWrapHandler, model_serializer, model_validator

from gates.analyses.base import (
    Conditions,
    GateSettings,
    MetricTest,
    Monitor,
    MonitoredGate,
    TestedGate,
    as_odds,
    as_ratio,
)
from gates.evidence.batch import Batch, Source
from gates.model import GateOutcome, Verdict
from gates.spec import GatesByName, tested_kinds
from tidegate.core.errors import UsageError
from tidegate.core.model import Value

Method = Literal["e-values/4"]
"""The name of the statistics. A plan that names others is refused: it was not judged by these."""
METHOD: Method = "e-values/4"


class AnalysisPlan(Value):
    """What one sequential test asks, of which sources, and how sure it must be."""

    method: Method = METHOD
    settings: Mapping[str, SerializeAsAny[GateSettings]] = {}
    """By gate. In JSON, and where a plan is made, a gate that is called by its kind is a key of the plan itself; others
    are below `named`, each with its kind."""
    sources: Mapping[str, Annotated[tuple[Source, ...], Field(min_length=1)]] = {}
    """By gate, who counts for it; users, or the probe for gates on pairs, when it is not named."""
    rollback: float = Field(default=0.01, gt=0, lt=1)
    """The chance that this test rolls back a version that is no worse: its share of the delivery's budget."""
    accept: float = Field(default=0.05, gt=0, lt=1)
    """The chance that a version worse by a gate's margin passes that gate."""
    temper: bool = True
    mirrored: float | None = Field(default=None, gt=0, le=1)
    """The share of user traffic that is copied to the canary; None when the canary has users of its own."""

    @model_validator(mode="before")
    @classmethod
    def _gathered(cls, given: Any) -> Any:
        """The gates' settings, from the keys of the plan."""
        if not isinstance(given, Mapping):
            return given
        kinds = tested_kinds()
        found = {name: kinds[name].model_validate(given[name]) for name in kinds if given.get(name) is not None}
        for name, each in given.get("named", {}).items():
            own = {key: value for key, value in each.items() if key != "kind"}
            found[name] = kinds[each["kind"]].model_validate(own)
        rest = {key: value for key, value in given.items() if key not in {*kinds, "named"}}
        return {**rest, "settings": {**rest.get("settings", {}), **found}}

    @model_serializer(mode="wrap")
    def _flat(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        whole = handler(self)
        gates = whole.pop("settings", {})
        first = {"method": whole.pop("method")} if "method" in whole else {}
        named = {
            gate: {"kind": each.name, **gates.pop(gate)} for gate, each in self.settings.items() if gate != each.name
        }
        return {**first, **dict.fromkeys(tested_kinds()), **gates, **({"named": named} if named else {}), **whole}

    @property
    def gates(self) -> tuple[str, ...]:
        """The names of the gates that are asked, in the order of their verdicts."""
        return tuple(gate for kind in tested_kinds() for gate, each in self.settings.items() if kind == each.name)

    def sources_of(self, gate: str) -> tuple[Source, ...]:
        """Who counts for a gate."""
        return self.sources.get(gate, self.settings[gate].usual_sources)

    @property
    def sharing(self) -> int:
        """How many gates share the budget."""
        return sum(each.bounded for each in self.settings.values())

    @property
    def conditions(self) -> Conditions:
        """What the statistics of each gate must know besides its settings; gates share the budget evenly."""
        return Conditions(
            rollback=self.rollback / max(self.sharing, 1),
            accept=self.accept,
            temper=self.temper,
            mirrored=self.mirrored,
        )


def analysis_plan_of(
    gates: GatesByName,
    asked: Iterable[str],
    *,
    sources: Mapping[str, tuple[Source, ...]],
    share: float,
    mirrored: float | None = None,
) -> AnalysisPlan:
    """The analysis plan of one test of a delivery.

    `asked` names the gates, `share` is the test's part of the delivery's chance of a false rollback, 0 to
    1; `mirrored` is as in `AnalysisPlan`.
    """
    known = gates.asked
    settings = {name: gates.kind_of(name).frozen(known[name]) for name in asked if name in known}
    budget = gates.budget
    sure = {"rollback": budget.rollback * share, "accept": budget.accept, "temper": budget.temper}
    plan = AnalysisPlan(settings=settings, sources=sources, mirrored=mirrored, **sure)
    # Through JSON, because that is what is kept: a replay must start from the very same numbers.
    return AnalysisPlan.model_validate_json(plan.model_dump_json())


class Allocation(Value):
    """Which source a metric test is fed from, and its share of the error budget."""

    gate: str
    source: Source
    weight: float
    """Of the whole test's budget; all together make 1."""


def metric_tests(plan: AnalysisPlan) -> Iterator[tuple[Allocation, MetricTest]]:
    """Every metric test of the plan. Gates share the budget evenly, and each gate's sources share its part."""
    for gate in plan.gates:
        if not isinstance(settings := plan.settings[gate], TestedGate):
            continue
        for source in (sources := plan.sources_of(gate)):
            found = list(settings.tests(replace(plan.conditions, gate=gate, source=source)))
            for part, test in found:
                weight = part / sum(each for each, _ in found) / len(sources) / plan.sharing
                yield Allocation(gate=gate, source=source, weight=weight), test


class _Standing:
    """A metric test and what it has shown so far."""

    def __init__(self, asked: Allocation, test: MetricTest) -> None:
        self.asked, self.test = asked, test
        self.log_best = -math.inf
        """The clearest evidence since the last restart that the canary is fine."""
        self.without_series = 0
        """Batches in a row, since the last restart, that lacked the series of an arm."""

    def poll(self) -> None:
        self.log_best = max(self.log_best, self.test.log_fine)
        self.without_series = self.without_series + 1 if self.test.missing and not self.test.seen else 0

    def restart(self) -> None:
        self.test.restart()
        self.log_best = -math.inf
        self.without_series = 0

    @property
    def log_share(self) -> float:
        """What it adds to the test's evidence that something is worse."""
        weight = self.asked.weight
        return math.log(weight) + self.test.log_worse if weight else -math.inf

    def fine(self, log_needed: float) -> bool:
        """Whether it has shown that the canary is fine, and nothing since has taken that back."""
        shown = self.log_best >= log_needed and self.test.log_fine >= 0
        return shown and self.test.seen >= self.test.needed


class SequentialTest:
    """Takes batches, answers verdicts; the same batches always give the same verdicts."""

    def __init__(self, plan: AnalysisPlan) -> None:
        """`plan` must not have been chosen with the evidence in sight."""
        self.plan = plan
        self._standings = [_Standing(asked, test) for asked, test in metric_tests(plan)]
        self._monitors: dict[str, Monitor] = {
            gate: settings.monitor(replace(plan.conditions, gate=gate))
            for gate in plan.gates
            if isinstance(settings := plan.settings[gate], MonitoredGate)
        }
        self._times: dict[str, float] = {}
        self._failed: Verdict | None = None

    def take(self, batch: Batch) -> None:
        """Learn from one batch.

        Raises:
            UsageError: when it is not later than the last batch of its source; nothing was learnt then.
        """
        last = self._times.get(batch.source)
        if last is not None and batch.time <= last:
            raise UsageError(
                f"a batch at {batch.time:.3f} came after one at {last:.3f} from the same source",
                hint="send batches in the order of their time",
            )
        self._times[batch.source] = batch.time
        seconds = 0.0 if last is None else batch.time - last
        for standing in self._standings:
            if standing.asked.source == batch.source:
                standing.test.take(batch, seconds)
                standing.poll()
        for gate, monitor in self._monitors.items():
            if batch.source in self.plan.sources_of(gate):
                monitor.take(batch, seconds)
        if self._failed is None and self.log_worse >= -math.log(self.plan.rollback):
            culprit = max(self._standings, key=lambda standing: standing.log_share)
            self._failed = self._verdict(culprit, GateOutcome.FAIL)

    def latest(self, source: Source) -> float | None:
        """When the last batch of a source ended, in Unix time; None before there is one."""
        return self._times.get(source)

    def restart(self) -> None:
        """Traffic is shared out again: whether the canary is fine must be shown again, at the new weight."""
        for standing in self._standings:
            standing.restart()
        for monitor in self._monitors.values():
            monitor.restart()

    @property
    def log_worse(self) -> float:
        """Natural logarithm of the evidence that anything is worse, over all tests."""
        return float(np.logaddexp.reduce([standing.log_share for standing in self._standings] or [-math.inf]))

    def without_series(self, batches: int) -> Mapping[str, str]:
        """By gate that had nothing of an arm in so many batches in a row, what is missing."""
        found = [standing for standing in self._standings if standing.without_series >= batches]
        return {standing.asked.gate: standing.test.missing for standing in found}

    def verdicts(self, *, deadline_passed: bool = False) -> tuple[Verdict, ...]:
        """One for each gate, in the order of the plan. A gate that has failed stays so."""
        return tuple(self._of_gate(gate, deadline_passed=deadline_passed) for gate in self.plan.gates)

    def _of_gate(self, gate: str, *, deadline_passed: bool) -> Verdict:
        if self._failed and self._failed.gate == gate:
            return self._failed
        if monitor := self._monitors.get(gate):
            return monitor.verdict(deadline_passed=deadline_passed).model_copy(update={"gate": gate})
        mine = [standing for standing in self._standings if standing.asked.gate == gate]
        open_ones = [standing for standing in mine if not standing.fine(self._log_needed)]
        if not open_ones:
            # The test that was hardest to pass says how sure the whole is.
            return self._verdict(min(mine, key=lambda standing: standing.test.log_fine), GateOutcome.PASS)
        outcome = GateOutcome.INCONCLUSIVE if deadline_passed else GateOutcome.RUNNING
        return self._verdict(min(open_ones, key=lambda standing: standing.test.log_fine), outcome)

    @property
    def _log_needed(self) -> float:
        return -math.log(self.plan.accept)

    def _verdict(self, standing: _Standing, outcome: GateOutcome) -> Verdict:
        test, asked = standing.test, standing.asked
        numbers = dict(test.numbers())
        if asked.weight:
            # What a fail needs of this test alone: its share of the budget is its weight.
            needed = -math.log(self.plan.rollback * asked.weight)
            numbers |= {"evidence_worse": as_ratio(test.log_worse), "evidence_worse_needed": as_ratio(needed)}
        numbers |= {"evidence_fine": as_ratio(test.log_fine), "evidence_fine_needed": as_ratio(self._log_needed)}
        auxiliary = {name: value for name, value in self._auxiliary(asked).items() if name not in numbers}
        words = self._words(standing, outcome)
        return Verdict(gate=asked.gate, outcome=outcome, reason=words, numbers=numbers, auxiliary=auxiliary)

    def _auxiliary(self, asked: Allocation) -> dict[str, float]:
        """What every test of the gate knows from the same source; other sources use the same names."""
        numbers: dict[str, float] = {}
        for each in self._standings:
            if (each.asked.gate, each.asked.source) == (asked.gate, asked.source):
                numbers |= each.test.numbers()
                numbers |= each.test.auxiliary()
        return numbers

    def _words(self, standing: _Standing, outcome: GateOutcome) -> str:
        test = standing.test
        seen = f"after {test.seen:,} {test.sample}"
        described = test.describe()
        if not test.seen:
            return described
        if outcome is GateOutcome.FAIL:
            return f"{described}: evidence {as_odds(test.log_worse)} {test.worse}, {seen}"
        if outcome is GateOutcome.PASS:
            return f"{described}: evidence {as_odds(standing.log_best)} {test.fine}, {seen}"
        if test.shows_nothing:
            return f"{described}: {test.shows_nothing}"
        if standing.log_best >= self._log_needed and test.seen < test.needed:
            return f"{described}: {test.seen:,} seen, {test.needed:,} are asked for"
        needed = f"{1 / self.plan.accept:,.0f}:1 needed"
        return f"{described}: evidence {as_odds(test.log_fine)} {test.fine} ({needed}), {seen}"
