"""`delivery.yaml`: everything a delivery is, in one file.

Each section is a class of the package that uses it (`gates.spec`, `slo`, `rollouts`, the modules next to this one);
here they become one document whose parts must fit each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    field_validator,
    model_validator,
)

from engine_images.accelerators import Accelerator
from engine_images.spec import EngineSettings
from gates.evidence.batch import USUAL_LOOK
from gates.spec import Gates, gate_of_stage, kinds_of_stage
from pipelines.spec.approvals import (
    ApprovalSpec,
    FreezeSpec,
    ResumeSpec,
    ValidationContext,
    Weight,
    approval_conflicts,
)
from pipelines.spec.model_reference import ModelReference
from pipelines.spec.sections import IN_CLUSTERS, ON_THIS_MACHINE, MetricsSpec, NotifySpec, PatienceSpec
from pipelines.spec.slo_gates import slo_conflicts
from pipelines.spec.workflow import WorkflowSpec, workflow_conflicts
from rollouts.manifests.nodes_spec import more_than_a_node_has
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.manifests.spec import FleetValidationContext as AroundFleet
from rollouts.manifests.spec import conflicts_with as fleet_conflicts
from slo.metrics.vllm import ALTERED_BY
from slo.spec import CostSpec, CountedBy, SloSpec, named_twice
from tidegate.core.durations import Duration, format_duration
from tidegate.core.errors import UsageError
from tidegate.core.model import Loc, SpecConflict, SpecModel
from tidegate.core.quantities import Percent, PercentText, percent_too
from tidegate.core.spec import NAME

Port = Annotated[int, Field(ge=1024, le=65535)]
Name = Annotated[str, Field(pattern=NAME)]


Mirrored = Annotated[
    int,
    BeforeValidator(percent_too, json_schema_input_type=Annotated[int, Field(ge=1, le=100)] | PercentText),
    Field(ge=1, le=100),
]
"""Percent of users' requests that are copied."""


API_PATIENCE = timedelta(minutes=10)
"""Longer than an API server takes to start again."""
SCRAPES = 3
"""In a look at least: arms are scraped at different moments, and what one of them shows early must be a small part."""


class Metadata(SpecModel):
    """Whose delivery this is."""

    name: Name


OfflineGate = Annotated[str, *gate_of_stage("offline")]
ShadowGate = Annotated[str, *gate_of_stage("shadow")]
CanaryGate = Annotated[str, *gate_of_stage("canary")]


class OfflineStage(SpecModel):
    """Questions with known answers, asked of the challenger and of the champion."""

    dataset: Path
    gates: tuple[OfflineGate, ...] = Field(default=kinds_of_stage("offline", by_default=True), min_length=1)


class ShadowStage(SpecModel):
    """Real traffic copied to the canary, and paired prompts sent to both arms."""

    percent: Mirrored = 100
    pairs_per_second: float = Field(default=1.0, gt=0, le=50)
    at_least: Duration = timedelta(minutes=5)
    within: Duration = timedelta(minutes=20)
    gates: tuple[ShadowGate, ...] = Field(default=kinds_of_stage("shadow", by_default=True), min_length=1)


def _rising(weights: tuple[int, ...]) -> tuple[int, ...]:
    if list(weights) != sorted(set(weights)):
        raise ValueError("weights that rise from step to step, such as [5, 25, 50]")
    return weights


class CanaryStage(SpecModel):
    """User traffic moved to the canary a little at a time."""

    weights: Annotated[tuple[Weight, ...], Field(min_length=1), AfterValidator(_rising)] = (5, 25, 50)
    at_least: Duration = timedelta(0)
    within: Duration = timedelta(minutes=30)
    gates: tuple[CanaryGate, ...] = Field(default=kinds_of_stage("canary", by_default=True), min_length=1)


class StageEntry(SpecModel):
    """One item of `stages`: exactly one stage under its name."""

    offline: OfflineStage | None = None
    shadow: ShadowStage | None = None
    canary: CanaryStage | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> StageEntry:
        named = [name for name in self.model_fields_set if getattr(self, name) is not None]
        if len(named) != 1 or len(self.model_fields_set) != 1:
            raise ValueError("exactly one of offline, shadow, canary in each item of the list")
        return self

    @property
    def name(self) -> str:
        """The stage's name."""
        return next(iter(self.model_fields_set))


class Regions(SpecModel):
    """Where the version goes: wave after wave, the regions of a wave together."""

    waves: tuple[Annotated[tuple[Name, ...], Field(min_length=1)], ...] = Field(min_length=1)
    bake: Duration = timedelta(minutes=30)

    @field_validator("waves")
    @classmethod
    def _each_once(cls, waves: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
        names = [region for wave in waves for region in wave]
        if len(names) != len(set(names)):
            raise ValueError("each region in one wave only")
        return waves

    @property
    def names(self) -> tuple[str, ...]:
        """All regions in the order of the waves."""
        return tuple(region for wave in self.waves for region in wave)


class LocalFleet(SpecModel):
    """The fleet on this machine; a region without a port gets a free one."""

    kind: Literal["local"] = "local"
    ports: Mapping[Name, Port] = {}
    unattended: Duration = timedelta(minutes=15)
    """How long nothing may be heard of the one who carries a trial that lives; of one that is gone
    it is known at once."""


def _kind_of(fleet: object) -> str:
    """Whose rules apply: a fleet that does not say is the one on this machine."""
    said = fleet.get("kind", "local") if isinstance(fleet, Mapping) else getattr(fleet, "kind", "local")
    return str(said)


Fleet = Annotated[
    Annotated[LocalFleet, Tag("local")] | Annotated[ArgoFleetSpec, Tag("argo")],
    Discriminator(
        _kind_of,
        custom_error_type="unknown_fleet",
        custom_error_message="a mapping whose `kind` is local or argo",
    ),
]


class Traffic(SpecModel):
    """The users of each region: what planning expects, and what `tidegate traffic` plays."""

    requests_per_second: float = Field(gt=0, le=1000)
    prompts: Path | None = None
    max_tokens: int = Field(default=32, ge=1, le=4096)
    regenerate: Percent = Field(default=0.0, ge=0, lt=1, validate_default=False)
    """Of answers after which the user that is played asks the same once more."""


class Delivery(SpecModel):
    """One model version's way to every production region."""

    api_version: Literal["tidegate/v1"] = Field(alias="apiVersion")
    kind: Literal["Delivery"]
    metadata: Metadata
    model: ModelReference
    engine: EngineSettings
    gates: Gates
    stages: tuple[StageEntry, ...] = Field(min_length=1)
    regions: Regions
    fleet: Fleet = LocalFleet()
    metrics: MetricsSpec = MetricsSpec()
    patience: PatienceSpec = PatienceSpec()
    traffic: Traffic | None = None
    approvals: tuple[ApprovalSpec, ...] = ()
    freeze: tuple[FreezeSpec, ...] = ()
    resume: ResumeSpec | None = None
    notify: tuple[NotifySpec, ...] = ()
    workflow: WorkflowSpec | None = None
    slos: tuple[SloSpec, ...] = ()
    cost: CostSpec | None = None

    _path: Path | None = PrivateAttr(default=None)

    def read_from(self, path: Path) -> Delivery:
        """The same spec, with the file that it was read from."""
        read = self.model_copy()
        read._path = path
        return read

    @property
    def path(self) -> Path:
        """The file that it was read from; what it names lies next to it."""
        if self._path is None:
            raise UsageError("this spec was not read from a file", hint="use `tidegate.load_spec`")
        return self._path

    @field_validator("stages")
    @classmethod
    def _in_order(cls, stages: tuple[StageEntry, ...]) -> tuple[StageEntry, ...]:
        order = ["offline", "shadow", "canary"]
        names = [stage.name for stage in stages]
        if names != [name for name in order if name in names]:
            raise ValueError("each stage at most once, in the order offline, shadow, canary")
        return stages

    def contradictions(self) -> Iterator[SpecConflict]:
        """What is missing for a stage, a stage that ends too soon, a fleet for other regions, a name of two SLOs."""
        for index, stage in enumerate(self.stages):
            yield from self._unready(stage, ("stages", index, stage.name))
        if isinstance(self.fleet, LocalFleet):
            yield from self._on_this_machine(self.fleet)
        else:
            yield from self._around_silence(self.fleet)
            yield from self._around_image()
            if odd := more_than_a_node_has(self.fleet.nodes, self.engine.accelerator, self.engine.accelerator_count):
                yield replace(odd, where=("engine", *odd.where))
            for conflict in fleet_conflicts(self.fleet, self._around_fleet()):
                yield replace(conflict, where=("fleet", *conflict.where))
        yield from self._around_unattended(self.fleet.unattended)
        yield from self._around_slos()
        yield from self._around_look(self.gates.budget.poll_interval)
        around = ValidationContext(
            regions=self.regions.names,
            waves=len(self.regions.waves),
            stages=[stage.name for stage in self.stages],
            weights=self.canary.weights if self.canary else (),
        )
        for conflict in approval_conflicts(self.approvals, around):
            yield replace(conflict, where=("approvals", *conflict.where))
        if self.workflow:
            clusters = self.fleet if isinstance(self.fleet, ArgoFleetSpec) else None
            for conflict in workflow_conflicts(self.workflow, clusters):
                yield replace(conflict, where=("workflow", *conflict.where))

    def _around_look(self, asked: timedelta | None) -> Iterator[SpecConflict]:
        """A look that does not have three scrapes of each arm in it."""
        if asked and asked < SCRAPES * self.scrape_interval:
            three, interval = format_duration(SCRAPES * self.scrape_interval), format_duration(self.scrape_interval)
            expected = f"at least {three}, three scrapes: `metrics.scrape_interval` is {interval}"
            yield SpecConflict(("gates", "budget", "poll_interval"), format_duration(asked), expected)

    def _around_silence(self, fleet: ArgoFleetSpec) -> Iterator[SpecConflict]:
        if fleet.patience and self.patience.api not in (None, fleet.patience):
            found = f"{format_duration(fleet.patience)}, and patience.api says otherwise"
            yield SpecConflict(("fleet", "patience"), found, "patience.api alone")
        if fleet.unattended <= self.api_patience:
            expected = f"more than `patience.api`, which is {format_duration(self.api_patience)}"
            yield SpecConflict(("fleet", "unattended"), format_duration(fleet.unattended), expected)

    def _around_unattended(self, unattended: timedelta) -> Iterator[SpecConflict]:
        """A delivery that waits for something else must not lose its regions meanwhile."""
        for name, patience in (("metrics", self.patience.metrics), ("registry", self.patience.registry)):
            if unattended <= patience:
                expected = f"more than `patience.{name}`, which is {format_duration(patience)}"
                yield SpecConflict(("fleet", "unattended"), format_duration(unattended), expected)

    def _around_image(self) -> Iterator[SpecConflict]:
        """An image of one's own next to one that is built, or without anybody who brings it its weights."""
        if self.engine.image is None:
            return
        if self.workflow and self.workflow.build:
            yield SpecConflict(("workflow", "build"), "a build next to `engine.image`", "one of the two")
        weights = self.engine.weights_place
        lacking = {"image": weights.image, "tracking_uri": weights.tracking_uri}
        if weights.from_registry and not self.workflow and not all(lacking.values()):
            names = " and ".join(name for name, said in lacking.items() if not said)
            found = f"weights from the registry, and no {names} of the container that brings them"
            expected = "`engine.weights` with both, a `workflow`, or one of claim, path, model"
            yield SpecConflict(("engine", "weights"), found, expected)

    def _on_this_machine(self, fleet: LocalFleet) -> Iterator[SpecConflict]:
        for region in fleet.ports:
            if region not in self.regions.names:
                yield SpecConflict(
                    ("fleet", "ports", region), "an unknown region", "one of " + ", ".join(self.regions.names)
                )
        if self.engine.accelerator is not Accelerator.CPU:
            found = f"{self.engine.accelerator} in the local fleet"
            yield SpecConflict(("engine", "accelerator"), found, "cpu, all that this machine has")
        if self.engine.image:
            expected = "`fleet: {kind: argo, ...}`, or no image: here engines are processes of the pinned vLLM"
            yield SpecConflict(("engine", "image"), "an image in the local fleet", expected)
        for conflict in self.metrics.of_machine():
            yield replace(conflict, where=("metrics", *conflict.where))

    def _around_fleet(self) -> AroundFleet:
        return AroundFleet(
            name=self.metadata.name,
            regions=self.regions.names,
            bake=self.regions.bake,
            accelerator=self.engine.accelerator,
            weights=self.canary.weights if self.canary else (),
            analysed=bool(self.slos),
        )

    def _around_slos(self) -> Iterator[SpecConflict]:
        """A name that two of them have, an engine without the metrics that they are written on, a gate without one."""
        yield from named_twice(self.slos)
        for argument in ALTERED_BY:
            if self.slos and self.engine.vllm and self.engine.vllm.args.get(argument):
                found = "metrics that the SLOs are not written on"
                yield SpecConflict(("engine", "vllm", "args", argument), found, "vLLM's own metrics, or no `slos`")
        for conflict in slo_conflicts(self.gates.burn_rate, self.slos) if self.gates.burn_rate else ():
            yield replace(conflict, where=("gates", "burn_rate", *conflict.where))

    def _unready(self, stage: StageEntry, where: Loc) -> Iterator[SpecConflict]:
        for place, gate in enumerate(getattr(stage, stage.name).gates):
            if getattr(self.gates, gate) is None:
                at = (*where, "gates", place)
                yield SpecConflict(at, f"'{gate}' without settings", f"settings at gates.{gate}")
        if stage.shadow and not self.offline and not (self.traffic and self.traffic.prompts):
            yield SpecConflict(where, "no prompts to pair", "prompts at traffic.prompts")
        timed = stage.shadow or stage.canary
        if timed and timed.at_least > timed.within:
            end = f"at most `within`, which is {format_duration(timed.within)}"
            yield SpecConflict((*where, "at_least"), format_duration(timed.at_least), end)

    @property
    def counted_by(self) -> CountedBy:
        """Who counts requests unless an SLO says otherwise: every engine of this machine is behind a proxy of ours."""
        return CountedBy.PROXY if isinstance(self.fleet, LocalFleet) else CountedBy.ENGINE

    @property
    def scrape_interval(self) -> timedelta:
        """Between two scrapes of an engine."""
        usual = ON_THIS_MACHINE if isinstance(self.fleet, LocalFleet) else IN_CLUSTERS
        return self.metrics.scrape_interval or usual

    @property
    def api_patience(self) -> timedelta:
        """How long a region's API server may be silent."""
        older = self.fleet.patience if isinstance(self.fleet, ArgoFleetSpec) else None
        return self.patience.api or older or API_PATIENCE

    @property
    def look(self) -> timedelta:
        """Between two batches of evidence: as asked, else three scrapes, and 10 s at least."""
        return self.gates.budget.poll_interval or max(SCRAPES * self.scrape_interval, USUAL_LOOK)

    def _stage(self, name: str) -> StageEntry | None:
        return next((stage for stage in self.stages if stage.name == name), None)

    @property
    def offline(self) -> OfflineStage | None:
        """The offline stage, when there is one."""
        entry = self._stage("offline")
        return entry.offline if entry else None

    @property
    def shadow(self) -> ShadowStage | None:
        """The shadow stage, when there is one."""
        entry = self._stage("shadow")
        return entry.shadow if entry else None

    @property
    def canary(self) -> CanaryStage | None:
        """The canary stage, when there is one."""
        entry = self._stage("canary")
        return entry.canary if entry else None
