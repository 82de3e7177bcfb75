"""The one list of gate kinds, and what a delivery's spec says of gates: their names, margins, and samples.

Specs, planning, sequential tests and stages ask the list instead of naming gates. A new kind is a module in
`gates.analyses` and a line here. A gate is called by its kind, or by any name with `kind` next to its settings, so that
a delivery can ask several of a kind; the name may be the word of another kind.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, Literal, TypeVar, Union, cast

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    SerializeAsAny,
    Tag,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    create_model,
)
from pydantic_core import PydanticKnownError

from gates.analyses.agreement import AgreementGate
from gates.analyses.base import GateSettings, MonitoredGate, TestedGate
from gates.analyses.burn_rate import BurnRateGate
from gates.analyses.command import CommandGate
from gates.analyses.drift import DriftGate
from gates.analyses.errors import ErrorsGate
from gates.analyses.guard import GuardGate
from gates.analyses.judge import ScoresGate
from gates.analyses.latency import LatencyGate
from gates.analyses.load import CostGate, ThroughputGate
from gates.analyses.mean import MeanGate
from gates.analyses.quality import QualityGate
from gates.analyses.quantile import QuantileGate
from gates.analyses.ratio import RatioGate
from gates.evidence.batch import Source
from gates.model import StageKind
from tidegate.core.metrics import MetricSource, untold
from tidegate.core.model import SpecConflict, SpecModel
from tidegate.core.units import Duration, Percent

GateKind = type[GateSettings]
GATE_KINDS: dict[str, GateKind] = {
    kind.name: kind
    for kind in (
        QualityGate,
        LatencyGate,
        ErrorsGate,
        AgreementGate,
        ScoresGate,
        BurnRateGate,
        DriftGate,
        ThroughputGate,
        CostGate,
        RatioGate,
        QuantileGate,
        MeanGate,
        GuardGate,
        CommandGate,
    )
}
"""By name, in the order in which a sequential test lists its verdicts."""


def tested_kinds() -> Mapping[str, GateKind]:
    """Those that a sequential test can have; the others are judged once, by their stage."""
    return {name: kind for name, kind in GATE_KINDS.items() if issubclass(kind, TestedGate | MonitoredGate)}


def kinds_from_batches() -> tuple[str, ...]:
    """Those that batches of evidence can answer, without a delivery around them."""
    return tuple(name for name, kind in GATE_KINDS.items() if kind.from_batches)


def kinds_of_stage(stage: StageKind, *, by_default: bool = False) -> tuple[str, ...]:
    """Those that a stage of a delivery can ask; `by_default` those that it has when it names none."""
    uses = {name: use for name, kind in GATE_KINDS.items() if (use := kind.use_in(stage))}
    return tuple(name for name, use in uses.items() if use.by_default or not by_default)


class Budget(SpecModel):
    """How often a whole delivery may be wrong: all gates, stages, regions and looks together."""

    rollback: Percent = Field(default=0.01, gt=0, le=0.2, validate_default=False)
    """The chance that a version that is no worse is rolled back."""
    accept: Percent = Field(default=0.05, gt=0, le=0.5, validate_default=False)
    """The chance that a version that is worse by a margin passes that gate."""
    temper: bool = True
    """Weaken evidence by the spread seen between stable pods."""
    poll_interval: Duration | None = Field(default=None, gt=timedelta(0))
    """Between two batches of evidence; as often as the metrics' scrape interval allows when absent, 10 s at least."""


GATE_NAME = re.compile(r"[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?")
RESERVED = frozenset({"budget", "evidence", "health"})
"""Names that verdicts of other origin have, and the section's own key."""
Spec = TypeVar("Spec", bound=SpecModel)


class GatesByName(SpecModel):
    """Gates by name; one that does not say its `kind` is called by it."""

    model_config = ConfigDict(extra="allow")

    budget: Budget = Budget()

    @property
    def asked(self) -> Mapping[str, SpecModel]:
        """The settings of each gate that has some, by name, in the order of their verdicts."""
        found = {**{name: getattr(self, name, None) for name in GATE_KINDS}, **(self.model_extra or {})}
        return {gate: each for kind in GATE_KINDS for gate, each in found.items() if each and each.name == kind}

    def kind_of(self, gate: str) -> GateKind:
        """The kind of the gate with that name."""
        asked: Any = self.asked[gate]
        return GATE_KINDS[asked.name]

    def of(self, spec: type[Spec]) -> dict[str, Spec]:
        """The gates whose settings are of this class, by name."""
        return {gate: each for gate, each in self.asked.items() if isinstance(each, spec)}

    def only(self, spec: type[Spec]) -> Spec | None:
        """The settings of a kind that is asked once at most; None when it is not asked."""
        return next(iter(self.of(spec).values()), None)

    def contradictions(self) -> Iterator[SpecConflict]:
        """Names that no gate can have, and a second gate of a kind that there can be one of."""
        for gate in self.model_extra or {}:
            if not GATE_NAME.fullmatch(gate) or gate in RESERVED:
                expected = "a name of lower-case letters, digits, dashes and underscores"
                yield SpecConflict((gate,), f"the name '{gate}'", f"{expected}; not {', '.join(sorted(RESERVED))}")
        first: dict[str, str] = {}
        for gate in self.asked:
            kind = self.kind_of(gate)
            before = first.setdefault(kind.name, gate)
            if before != gate and not kind.several:
                expected = f"one of this kind: evidence is made for the settings of '{before}'"
                yield SpecConflict((gate,), f"a second gate of kind {kind.name}", expected)


def stage_sources(stage: StageKind, gates: GatesByName, *, samples: bool = False) -> Mapping[str, tuple[Source, ...]]:
    """Who counts in a stage for the gates whose kinds have their own sources there, by the gates' names.

    `samples` says whether engines keep samples of users' answers.
    """
    uses = {gate: gates.kind_of(gate).use_in(stage) for gate in gates.asked}
    sources = {gate: use for gate, use in uses.items() if use and use.sources}
    return {gate: ("samples",) if samples and use.of_users else use.sources for gate, use in sources.items()}


def untold_by(sources: Sequence[MetricSource], gates: GatesByName, asked: Sequence[str]) -> Iterator[SpecConflict]:
    """Those of `asked` that ask a Prometheus what none of `sources` tells; places are those within the gates."""
    for gate in asked:
        for place, signal in gates.kind_of(gate).frozen(gates.asked[gate]).signals().items():
            yield from untold(sources, signal, (gate, *place))


Section = TypeVar("Section", bound=GatesByName)


def section(settings: Mapping[str, type[SpecModel]]) -> Callable[[type[Section]], type[Section]]:
    """Give a class a key for each kind, and for gates of any other name; `settings` are the kinds' classes by name."""
    of_kind = {kind: _named(each, kind) for kind, each in settings.items()}
    members: Any = tuple(Annotated[each, Tag(kind)] for kind, each in of_kind.items())
    named: Any = Annotated[Union[members], Discriminator(_kind_said)]  # noqa: UP007
    more = {name: _called(name, each, of_kind) for name, each in settings.items()}

    def extended(base: type[Section]) -> type[Section]:
        body = {
            "__module__": base.__module__,
            "__doc__": base.__doc__,
            "__annotations__": {"__pydantic_extra__": dict[str, named], **more},
            "of_other_names": named,
            **dict.fromkeys(more),
        }
        return cast(type[Section], types.new_class(base.__name__, (base,), exec_body=lambda space: space.update(body)))

    return extended


def _named(settings: type[SpecModel], kind: str) -> type[SpecModel]:
    said: Any = (Literal[kind], Field(description="The kind of this gate, which has a name of its own."))
    return create_model(f"Named{settings.__name__}", __base__=settings, __doc__=settings.__doc__, kind=said)


def _called(name: str, own: type[SpecModel], of_kind: Mapping[str, type[SpecModel]]) -> Any:
    """The type of a key that is a kind's name: that kind's settings, or those of the kind that they say."""

    def read(settings: object, handler: ValidatorFunctionWrapHandler) -> object:
        kind = _kind_said(settings)
        if kind is None or isinstance(settings, own) or not isinstance(settings, Mapping):
            return handler(settings)
        if kind == name:
            return handler({key: each for key, each in settings.items() if key != "kind"})
        if kind not in of_kind:
            known = ", ".join(f"'{each}'" for each in of_kind)
            raise PydanticKnownError(
                "union_tag_invalid", {"discriminator": "'kind'", "tag": str(kind), "expected_tags": known}
            )
        return of_kind[str(kind)].model_validate(settings)

    # What is called by the word of another kind is of another class; to mypy it is an alias.
    as_any: Any = SerializeAsAny
    found: Any = as_any[own] | None
    return Annotated[found, WrapValidator(read)]


def _kind_said(settings: object) -> object:
    return settings.get("kind") if isinstance(settings, Mapping) else getattr(settings, "kind", None)


@section({name: kind.spec or kind for name, kind in GATE_KINDS.items()})
class Gates(GatesByName):
    """The gates of a delivery; stages name those that they wait for."""


def gate_of_stage(stage: StageKind) -> WithJsonSchema:
    """What makes a text the name of a gate that a stage of a delivery can ask.

    Whether a gate of that name is there, and can be asked, only the whole spec tells.
    """
    other = {"type": "string", "pattern": f"^{GATE_NAME.pattern}$"}
    return WithJsonSchema({"anyOf": [{"enum": list(kinds_of_stage(stage))}, other]})
