"""A file of kind Gates: what a judge is asked by the one who brings the evidence, without a delivery around it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, create_model

from gates.analyses.agreement import AgreementGate
from gates.analyses.errors import ErrorsGate
from gates.analyses.judge import ScoresGate
from gates.analyses.latency import LatencyGate
from gates.evidence.batch import Source
from gates.sequential_test import AnalysisPlan
from gates.spec import GATE_KINDS, Budget, is_paired, kinds_from_batches
from tidegate.core.model import SpecConflict, SpecModel
from tidegate.core.quantities import Percent

if TYPE_CHECKING:
    Gate = str
else:
    Gate = Literal[kinds_from_batches()]
Sources = Annotated[tuple[Source, ...], Field(min_length=1)]


class GateMetadata(SpecModel):
    """What reports call this judgement."""

    name: str = Field(default="", max_length=200)


class BuiltInEvidenceGates(SpecModel):
    """The gates that batches of evidence can answer."""

    budget: Budget = Budget()
    """Of all that is judged from one start to one end, and not of a delivery: who runs six of them for one
    version gives each a sixth of `rollback`."""
    latency: LatencyGate | None = None
    errors: ErrorsGate | None = None
    agreement: AgreementGate | None = None
    judge: ScoresGate | None = None


def evidence_section() -> type[BuiltInEvidenceGates]:
    """The class of `gates` in a file of kind Gates: a key for each kind that batches of evidence can answer."""
    base = BuiltInEvidenceGates
    more: dict[str, Any] = {
        name: (GATE_KINDS[name].settings | None, None) for name in kinds_from_batches() if name not in base.model_fields
    }
    return create_model("EvidenceGates", __base__=base, __doc__=base.__doc__, **more)


if TYPE_CHECKING:
    EvidenceGates = BuiltInEvidenceGates
else:
    EvidenceGates = evidence_section()


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

    def contradictions(self) -> Iterator[SpecConflict]:
        """A file that asks nothing, or names sources of a gate that it does not ask."""
        if not self.asked:
            yield SpecConflict(("gates",), "no gate", f"at least one of {', '.join(kinds_from_batches())}")
        for gate, sources in self.sources.items():
            if gate not in self.asked:
                yield SpecConflict(("sources", gate), "a gate without settings", f"settings at gates.{gate}")
            if len(set(sources)) != len(sources):
                yield SpecConflict(("sources", gate), "a source twice", "each source once")

    @property
    def asked(self) -> tuple[Gate, ...]:
        """The gates that have settings."""
        return tuple(gate for gate in kinds_from_batches() if getattr(self.gates, gate) is not None)

    def terms(self, *, counted_by: Source = "users") -> AnalysisPlan:
        """The analysis plan; `counted_by` is whose word counts for gates whose sources are not named."""
        unnamed: dict[str, tuple[Source, ...]] = {
            gate: (counted_by,) for gate in self.asked if gate not in self.sources and not is_paired(gate)
        }
        budget = self.gates.budget
        terms = AnalysisPlan(
            **{gate: getattr(self.gates, gate) for gate in self.asked},
            sources={**unnamed, **self.sources},
            rollback=budget.rollback,
            accept=budget.accept,
            temper=budget.temper,
            mirrored=self.mirrored,
        )
        # As everywhere: what is judged is what could be written down.
        return AnalysisPlan.model_validate_json(terms.model_dump_json())
