"""`delivery.yaml`: everything a delivery is, in one file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from engine_images.accelerators import Accelerator
from engine_images.spec import EngineSettings
from gates.spec import Gates
from pipelines.approval_spec import ApprovalSpec, Around, FreezeSpec, ResumeSpec, Weight
from pipelines.approval_spec import odds_with as odds_with_approvals
from pipelines.metrics_spec import IN_CLUSTERS, ON_THIS_MACHINE, MetricsSpec, look_of, too_soon
from pipelines.notify.spec import NotifySpec
from pipelines.patience_spec import PatienceSpec
from pipelines.slo_gate import odds_with as odds_with_slos
from pipelines.workflow.spec import WorkflowSpec
from pipelines.workflow.spec import odds_with as odds_with_workflow
from rollouts.manifests.odds import Around as AroundFleet
from rollouts.manifests.odds import odds_with as odds_with_fleet
from rollouts.manifests.spec import ArgoFleetSpec
from slo.metrics.vllm import ALTERED_BY
from slo.spec import CostSpec, CountedBy, SloSpec, named_twice
from tidegate.core.model import Contradiction, Loc, SpecModel
from tidegate.core.quantities import Duration, Percent, PercentText, format_duration, percent_too

Port = Annotated[int, Field(ge=1024, le=65535)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]


Mirrored = Annotated[
    int,
    BeforeValidator(percent_too, json_schema_input_type=Annotated[int, Field(ge=1, le=100)] | PercentText),
    Field(ge=1, le=100),
]
"""Percent of users' requests that are copied."""


API_PATIENCE = timedelta(minutes=10)
"""Longer than an API server takes to start again."""


class Metadata(SpecModel):
    """Whose delivery this is."""

    name: Name


class ModelReference(SpecModel):
    """Which model version moves, and what it becomes: both are MLflow aliases."""

    name: str = Field(pattern=r"""^[^'"`\\/:\x00-\x1f]+$""")
    origin: str = Field(default="challenger", alias="from", min_length=1)
    target: Literal["champion"] = Field(default="champion", alias="to")


class OfflineStage(SpecModel):
    """Questions with known answers, asked of the challenger and of the champion."""

    dataset: Path
    gates: tuple[Literal["quality"], ...] = Field(default=("quality",), min_length=1)


class ShadowStage(SpecModel):
    """Real traffic copied to the canary, and paired prompts sent to both arms."""

    percent: Mirrored = 100
    pairs_per_second: float = Field(default=1.0, gt=0, le=50)
    at_least: Duration = timedelta(minutes=5)
    within: Duration = timedelta(minutes=20)
    gates: tuple[Literal["latency", "errors", "agreement", "judge", "burn_rate"], ...] = Field(
        default=("latency", "errors", "agreement"), min_length=1
    )


def _rising(weights: tuple[int, ...]) -> tuple[int, ...]:
    if list(weights) != sorted(set(weights)):
        raise ValueError("weights that rise from step to step, such as [5, 25, 50]")
    return weights


class CanaryStage(SpecModel):
    """User traffic moved to the canary a little at a time."""

    weights: Annotated[tuple[Weight, ...], Field(min_length=1), AfterValidator(_rising)] = (5, 25, 50)
    at_least: Duration = timedelta(0)
    within: Duration = timedelta(minutes=30)
    gates: tuple[Literal["latency", "errors", "drift", "burn_rate"], ...] = Field(
        default=("latency", "errors"), min_length=1
    )


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

    @field_validator("stages")
    @classmethod
    def _in_order(cls, stages: tuple[StageEntry, ...]) -> tuple[StageEntry, ...]:
        order = ["offline", "shadow", "canary"]
        names = [stage.name for stage in stages]
        if names != [name for name in order if name in names]:
            raise ValueError("each stage at most once, in the order offline, shadow, canary")
        return stages

    def contradictions(self) -> Iterator[Contradiction]:
        """What is missing for a stage, a stage that ends too soon, a fleet for other regions, a name of two SLOs."""
        for index, stage in enumerate(self.stages):
            yield from self._unready(stage, ("stages", index, stage.name))
        if isinstance(self.fleet, LocalFleet):
            yield from self._on_this_machine(self.fleet)
        else:
            yield from self._around_silence(self.fleet)
            for odd in odds_with_fleet(self.fleet, self._around_fleet()):
                yield replace(odd, where=("fleet", *odd.where))
        yield from self._around_slos()
        for odd in too_soon(self.gates.budget.look, self.scrape_interval):
            yield replace(odd, where=("gates", "budget", "look"))
        around = Around(
            regions=self.regions.names,
            waves=len(self.regions.waves),
            stages=[stage.name for stage in self.stages],
            weights=self.canary.weights if self.canary else (),
        )
        for odd in odds_with_approvals(self.approvals, around):
            yield replace(odd, where=("approvals", *odd.where))
        if self.workflow:
            clusters = self.fleet if isinstance(self.fleet, ArgoFleetSpec) else None
            for odd in odds_with_workflow(self.workflow, clusters):
                yield replace(odd, where=("workflow", *odd.where))

    def _around_silence(self, fleet: ArgoFleetSpec) -> Iterator[Contradiction]:
        if fleet.patience and self.patience.api not in (None, fleet.patience):
            found = f"{format_duration(fleet.patience)}, and patience.api says otherwise"
            yield Contradiction(("fleet", "patience"), found, "patience.api alone")
        if fleet.unattended <= self.api_patience:
            expected = f"more than `patience.api`, which is {format_duration(self.api_patience)}"
            yield Contradiction(("fleet", "unattended"), format_duration(fleet.unattended), expected)

    def _on_this_machine(self, fleet: LocalFleet) -> Iterator[Contradiction]:
        for region in fleet.ports:
            if region not in self.regions.names:
                yield Contradiction(
                    ("fleet", "ports", region), "an unknown region", "one of " + ", ".join(self.regions.names)
                )
        if self.engine.accelerator is not Accelerator.CPU:
            found = f"{self.engine.accelerator} in the local fleet"
            yield Contradiction(("engine", "accelerator"), found, "cpu, all that this machine has")
        for odd in self.metrics.of_machine():
            yield replace(odd, where=("metrics", *odd.where))

    def _around_fleet(self) -> AroundFleet:
        return AroundFleet(
            name=self.metadata.name,
            regions=self.regions.names,
            bake=self.regions.bake,
            accelerator=self.engine.accelerator,
            weights=self.canary.weights if self.canary else (),
        )

    def _around_slos(self) -> Iterator[Contradiction]:
        """A name that two of them have, an engine without the metrics that they are written on, a gate without one."""
        yield from named_twice(self.slos)
        for argument in ALTERED_BY:
            if self.slos and self.engine.vllm.args.get(argument):
                found = "metrics that the SLOs are not written on"
                yield Contradiction(("engine", "vllm", "args", argument), found, "vLLM's own metrics, or no `slos`")
        for odd in odds_with_slos(self.gates.burn_rate, self.slos) if self.gates.burn_rate else ():
            yield replace(odd, where=("gates", "burn_rate", *odd.where))

    def _unready(self, stage: StageEntry, where: Loc) -> Iterator[Contradiction]:
        for place, gate in enumerate(getattr(stage, stage.name).gates):
            if getattr(self.gates, gate) is None:
                at = (*where, "gates", place)
                yield Contradiction(at, f"'{gate}' without settings", f"settings at gates.{gate}")
        if stage.shadow and not self.offline and not (self.traffic and self.traffic.prompts):
            yield Contradiction(where, "no prompts to pair", "prompts at traffic.prompts")
        timed = stage.shadow or stage.canary
        if timed and timed.at_least > timed.within:
            end = f"at most `within`, which is {format_duration(timed.within)}"
            yield Contradiction((*where, "at_least"), format_duration(timed.at_least), end)

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
        """Between two batches of evidence."""
        return look_of(self.gates.budget.look, self.scrape_interval)

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
