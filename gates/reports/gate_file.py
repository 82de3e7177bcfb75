"""A file of kind Gates: what a judge is asked by the one who brings the evidence, without a delivery around it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from gates.analyses.mean import assessing
from gates.evidence.batch import Source
from gates.sequential_test import AnalysisPlan, analysis_plan_of
from gates.spec import GATE_KINDS, Budget, GatesByName, kinds_from_batches, section, untold_by
from tidegate.core.metrics import MetricNames
from tidegate.core.model import SpecConflict, SpecModel
from tidegate.core.units import Percent

Sources = Annotated[tuple[Source, ...], Field(min_length=1)]


class GateMetadata(SpecModel):
    """What reports call this judgement."""

    name: str = Field(default="", max_length=200)


@section({name: GATE_KINDS[name] for name in kinds_from_batches()})
class EvidenceGates(GatesByName):
    """The gates that batches of evidence can answer."""

    budget: Budget = Budget()
    """Of all that is judged from one start to one end, and not of a delivery: who runs six of them for one
    version gives each a sixth of `rollback`."""


class GateFile(SpecModel):
    """What `tidegate gate check` is asked."""

    api_version: Literal["tidegate/v1"] = Field(alias="apiVersion")
    kind: Literal["Gates"]
    metadata: GateMetadata = GateMetadata()
    gates: EvidenceGates
    sources: Mapping[str, Sources] = {}
    """By gate, whose word counts; users' when it is not named, the probe's for agreement and judge."""
    metrics: MetricNames = MetricNames()
    """Which series of a Prometheus are read, where that is the evidence."""
    mirrored: Percent | None = Field(default=None, gt=0, le=1)
    """The share of user traffic that is copied to a canary without users of its own; absent when it has some."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """A file that asks nothing, or names sources of a gate that it does not ask."""
        if not self.asked:
            yield SpecConflict(("gates",), "no gate", f"at least one of {', '.join(kinds_from_batches())}")
        for gate, sources in self.sources.items():
            if gate not in self.asked:
                yield SpecConflict(("sources", gate), "a gate without settings", f"settings at gates.{gate}")
            if len(set(sources)) != len(sources):
                yield SpecConflict(("sources", gate), "a source twice", "each source once")
        unpaired = [gate for gate in self.asked if not self.gates.kind_of(gate).paired()]
        for odd in untold_by(self.metrics.sources, self.gates, unpaired):
            yield replace(odd, where=("gates", *odd.where))

    def without_answers(self) -> Iterator[SpecConflict]:
        """Gates that a Prometheus cannot answer: they compare answers to the same prompts, and metrics hold none."""
        for gate in self.asked:
            kind = self.gates.kind_of(gate)
            if kind.paired():
                what = "blocks of load" if "load" in kind.usual_sources else "pairs of answers"
                expected = f"a gate on requests or their times; {what} are batches of a file of evidence"
                yield SpecConflict(("gates", gate), f"a gate on {what}, which no metric holds", expected)
        for gate in assessing(self.gates.asked):
            yield SpecConflict(
                ("gates", gate, "assessments"), "assessments", "counters: a delivery alone asks its MLflow"
            )

    @property
    def asked(self) -> tuple[str, ...]:
        """The names of the gates that have settings."""
        return tuple(self.gates.asked)

    def terms(self, *, counted_by: Source = "users") -> AnalysisPlan:
        """The analysis plan; `counted_by` is whose word counts for gates whose sources are not named."""
        unnamed: dict[str, tuple[Source, ...]] = {
            gate: (counted_by,)
            for gate in self.asked
            if gate not in self.sources and not self.gates.kind_of(gate).paired()
        }
        return analysis_plan_of(
            self.gates, self.asked, sources={**unnamed, **self.sources}, share=1.0, mirrored=self.mirrored
        )
