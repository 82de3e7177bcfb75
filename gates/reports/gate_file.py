"""A file of kind Gates: what a judge is asked by whoever brings the evidence, without a delivery around it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field

from gates.spec import AgreementGate, Budget, ErrorsGate, LatencyGate, ScoresGate
from gates.terms import PAIRED, Source, Terms
from tidegate.core.model import Contradiction, SpecModel
from tidegate.core.quantities import Percent

Gate = Literal["latency", "errors", "agreement", "judge"]
Sources = Annotated[tuple[Source, ...], Field(min_length=1)]


class GateMetadata(SpecModel):
    """What reports call this judgement."""

    name: str = Field(default="", max_length=200)


class EvidenceGates(SpecModel):
    """The gates that batches of evidence can answer."""

    budget: Budget = Budget()
    """Of all that is judged from one start to one end, and not of a delivery: who runs six of them for one
    version gives each a sixth of `rollback`."""
    latency: LatencyGate | None = None
    errors: ErrorsGate | None = None
    agreement: AgreementGate | None = None
    judge: ScoresGate | None = None


class GateFile(SpecModel):
    """What `tidegate gate stream` and `tidegate gate check` are asked."""

    api_version: Literal["tidegate/v1"] = Field(alias="apiVersion")
    kind: Literal["Gates"]
    metadata: GateMetadata = GateMetadata()
    gates: EvidenceGates
    sources: Mapping[Gate, Sources] = {}
    """By gate, whose word counts; users' when it is not named, the probe's for agreement and judge."""
    mirrored: Percent | None = Field(default=None, gt=0, le=1)
    """The share of user traffic that is copied to a canary without users of its own; absent when it has some."""

    def contradictions(self) -> Iterator[Contradiction]:
        """A file that asks nothing, or names sources of a gate that it does not ask."""
        if not self.asked:
            yield Contradiction(("gates",), "no gate", "at least one of latency, errors, agreement, judge")
        for gate, sources in self.sources.items():
            if gate not in self.asked:
                yield Contradiction(("sources", gate), "a gate without settings", f"settings at gates.{gate}")
            if len(set(sources)) != len(sources):
                yield Contradiction(("sources", gate), "a source twice", "each source once")

    @property
    def asked(self) -> tuple[Gate, ...]:
        """The gates that have settings."""
        gates: tuple[Gate, ...] = ("latency", "errors", "agreement", "judge")
        return tuple(gate for gate in gates if getattr(self.gates, gate) is not None)

    def terms(self, *, counted_by: Source = "users") -> Terms:
        """The terms of one trial; `counted_by` is whose word counts for gates whose sources are not named."""
        unnamed: dict[str, tuple[Source, ...]] = {
            gate: (counted_by,) for gate in self.asked if gate not in PAIRED and gate not in self.sources
        }
        budget = self.gates.budget
        terms = Terms(
            **{gate: getattr(self.gates, gate) for gate in self.asked},
            sources={**unnamed, **self.sources},
            rollback=budget.rollback,
            accept=budget.accept,
            temper=budget.temper,
            mirrored=self.mirrored,
        )
        # As everywhere: what is judged is what could be written down.
        return Terms.model_validate_json(terms.model_dump_json())
