"""The analysis plan of a sequential test: everything that decides how evidence is judged, fixed before there is any.

Changing a margin, a weight or a source after data were seen would void every guarantee. So the plan is
frozen as JSON, and a replay is the same plan with the same batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, SerializeAsAny, SerializerFunctionWrapHandler, model_serializer, model_validator

from gates.analyses.base import Conditions, MetricTest, Monitor, MonitoredGate, TestedGate
from gates.analyses.drift.spec import DriftReference
from gates.evidence.batch import Source
from gates.model import NoData
from gates.spec import Gates, tested_kinds
from tidegate.core.model import SpecModel, Value

Settings = TypeVar("Settings", bound=SpecModel)
Method = Literal["e-values/1", "e-values/2"]
"""The names of the statistics that can be judged by. `e-values/1` counted mirrored copies window by window; its
transcripts are judged so again."""
METHOD: Method = "e-values/2"
"""Of plans that are made now."""


class AnalysisPlan(Value):
    """What one sequential test asks, of which sources, and how sure it must be."""

    method: Method = METHOD
    settings: Mapping[str, SerializeAsAny[SpecModel]] = {}
    """By gate. In JSON, and where a plan is made, each gate is a key of the plan itself."""
    reference: DriftReference | NoData = NoData(reason="no reference was frozen")
    """The bins in which drift is counted; frozen with the plan, because they decide what can be seen."""
    sources: Mapping[str, Annotated[tuple[Source, ...], Field(min_length=1)]] = {}
    """By gate, who counts for it; users, or the probe for gates on pairs, when it is not named."""
    rollback: float = Field(default=0.01, gt=0, lt=1)
    """The chance that this test takes back a version that is no worse: its share of the delivery's budget."""
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
        asked = {name: given[name] for name in kinds if given.get(name) is not None}
        found = {name: kinds[name].settings.model_validate(each) for name, each in asked.items()}
        rest = {key: value for key, value in given.items() if key not in kinds}
        return {**rest, "settings": {**rest.get("settings", {}), **found}}

    @model_serializer(mode="wrap")
    def _flat(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        whole = handler(self)
        gates = whole.pop("settings", {})
        first = {"method": whole.pop("method")} if "method" in whole else {}
        return {**first, **{name: gates.get(name) for name in tested_kinds()}, **whole}

    @property
    def gates(self) -> tuple[str, ...]:
        """The names of the gates that are asked, in the order of their verdicts."""
        return tuple(name for name in tested_kinds() if name in self.settings)

    def of(self, settings: type[Settings]) -> Settings | None:
        """The settings of this class; None when no such gate is asked."""
        return next((each for each in self.settings.values() if isinstance(each, settings)), None)

    def sources_of(self, gate: str) -> tuple[Source, ...]:
        """Who counts for a gate."""
        return self.sources.get(gate, tested_kinds()[gate].usual_sources)

    @property
    def conditions(self) -> Conditions:
        """What the statistics of each gate must know besides its settings; gates share the budget evenly."""
        return Conditions(
            rollback=self.rollback / max(len(self.gates), 1),
            accept=self.accept,
            temper=self.temper,
            mirrored=self.mirrored,
            copies_by_window=self.method == "e-values/1",
            reference=self.reference,
        )


def analysis_plan_of(
    gates: Gates,
    asked: Iterable[str],
    *,
    sources: Mapping[str, tuple[Source, ...]],
    share: float,
    mirrored: float | None = None,
    reference: DriftReference | NoData | None = None,
) -> AnalysisPlan:
    """The analysis plan of one test of a delivery.

    `asked` names the gates, `share` is the test's part of the delivery's chance of a false rollback, 0 to
    1; `mirrored` and `reference` are as in `AnalysisPlan`.
    """
    kinds, found = tested_kinds(), {name: getattr(gates, name) for name in asked}
    settings = {name: kinds[name].frozen(each) for name, each in found.items() if each is not None}
    budget = gates.budget
    sure = {"rollback": budget.rollback * share, "accept": budget.accept, "temper": budget.temper}
    known = {"reference": reference} if reference else {}
    plan = AnalysisPlan.model_validate({**settings, **sure, **known, "sources": sources, "mirrored": mirrored})
    # Through JSON, because that is what is kept: a replay must start from the very same numbers.
    return AnalysisPlan.model_validate_json(plan.model_dump_json())


def monitors(plan: AnalysisPlan) -> Iterator[tuple[str, Monitor]]:
    """The gates with statistics of their own, by name, each with an even share of the budget."""
    kinds = tested_kinds()
    for gate in plan.gates:
        if isinstance(kind := kinds[gate], MonitoredGate):
            yield gate, kind.monitor(plan.settings[gate], plan.conditions)


class Allocation(Value):
    """Which source a metric test is fed from, and its share of the error budget."""

    gate: str
    source: Source
    weight: float
    """Of the whole test's budget; all together make 1."""


def metric_tests(plan: AnalysisPlan) -> Iterator[tuple[Allocation, MetricTest]]:
    """Every metric test of the plan. Gates share the budget evenly, and each gate's sources share its part."""
    kinds = tested_kinds()
    for gate in plan.gates:
        if not isinstance(kind := kinds[gate], TestedGate):
            continue
        for source in (sources := plan.sources_of(gate)):
            found = list(kind.tests(plan.settings[gate], source, plan.conditions))
            for part, test in found:
                weight = part / sum(each for each, _ in found) / len(sources) / len(plan.gates)
                yield Allocation(gate=gate, source=source, weight=weight), test
