"""`delivery.yaml`: everything a delivery is, in one file.

Each section is a class of the package that uses it (`gates.spec`, `slo`, `rollouts`, the modules next to this one);
here they become one document whose parts must fit each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    field_validator,
    model_validator,
)

from engine_images.launch import is_known
from engine_images.spec import EngineSettings
from gates.analyses.agreement import AgreementGate
from gates.analyses.burn_rate import BurnRateGate
from gates.analyses.load import CostGate
from gates.analyses.quality import QualityGate
from gates.evidence.batch import USUAL_LOOK, Source
from gates.model import StageKind
from gates.spec import GATE_KINDS, Gates, gate_of_stage, kinds_of_stage, stage_sources, tested_kinds, untold_by
from pipelines.spec.approvals import (
    ApprovalSpec,
    FreezeSpec,
    ResumeSpec,
    Weight,
    approval_conflicts,
)
from pipelines.spec.git import GitSpec
from pipelines.spec.load import LoadSettings, load_conflicts
from pipelines.spec.sections import (
    IN_CLUSTERS,
    ON_THIS_MACHINE,
    Fleet,
    LocalFleet,
    MetricsSpec,
    ModelReference,
    NotifySpec,
    PatienceSpec,
    SamplesSpec,
    Traffic,
)
from pipelines.spec.slos import slo_conflicts, untold_by_engine
from pipelines.spec.workflow import WorkflowSpec, workflow_conflicts
from rollouts.manifests.spec import ArgoFleetSpec, ClusterFleetSpec
from rollouts.manifests.spec import FleetValidationContext as AroundFleet
from rollouts.manifests.theirs_spec import TheirsFleetSpec
from slo.metrics import BUCKETS
from slo.spec import CostSpec, CountedBy, SloSpec, added_edges, named_twice
from tidegate.core.errors import UsageError
from tidegate.core.metrics import MetricSignal, MetricSource, source_of
from tidegate.core.model import Loc, SpecConflict, SpecModel, below
from tidegate.core.spec import NAME
from tidegate.core.units import Duration, PercentText, format_duration, percent_too

Name = Annotated[str, Field(pattern=NAME)]


Mirrored = Annotated[
    int,
    BeforeValidator(percent_too, json_schema_input_type=Annotated[int, Field(ge=1, le=100)] | PercentText),
    Field(ge=1, le=100),
]
"""Percent of users' requests that are copied."""


SCRAPES = 3
"""In a look at least: arms are scraped at different moments, and what one of them shows early must be a small part."""


class Metadata(SpecModel):
    """Whose delivery this is."""

    example = "{name: support-llm}"
    name: Name


OfflineGate = Annotated[str, gate_of_stage("offline")]
LoadGate = Annotated[str, gate_of_stage("load")]
ShadowGate = Annotated[str, gate_of_stage("shadow")]
CanaryGate = Annotated[str, gate_of_stage("canary")]


class OfflineStage(SpecModel):
    """Questions with known answers, asked of the challenger and of the champion; and what others say of both."""

    dataset: Path | None = None
    """The golden set; a stage without the gate on quality needs none."""
    gates: tuple[OfflineGate, ...] = Field(default=kinds_of_stage("offline", by_default=True), min_length=1)


class LoadStage(LoadSettings):
    """The same load on the challenger and on the champion, block after block, before any request of users."""

    gates: tuple[LoadGate, ...] = Field(default=kinds_of_stage("load", by_default=True), min_length=1)


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

    example = "{weights: [5, 25, 50]}"
    weights: Annotated[tuple[Weight, ...], Field(min_length=1), AfterValidator(_rising)] = (5, 25, 50)
    at_least: Duration = timedelta(0)
    within: Duration = timedelta(minutes=30)
    gates: tuple[CanaryGate, ...] = Field(default=kinds_of_stage("canary", by_default=True), min_length=1)


ORDER: tuple[StageKind, ...] = ("offline", "load", "shadow", "canary")


class StageEntry(SpecModel):
    """One item of `stages`: exactly one stage under its name."""

    example = "canary: {weights: [5, 25, 50]}"
    offline: OfflineStage | None = None
    load: LoadStage | None = None
    shadow: ShadowStage | None = None
    canary: CanaryStage | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> StageEntry:
        named = [name for name in self.model_fields_set if getattr(self, name) is not None]
        if len(named) != 1 or len(self.model_fields_set) != 1:
            raise ValueError(f"exactly one of {', '.join(ORDER)} in each item of the list")
        return self

    @property
    def name(self) -> StageKind:
        """The stage's name."""
        return next(name for name in ORDER if name in self.model_fields_set)


class Regions(SpecModel):
    """Where the version goes: wave after wave, the regions of a wave together."""

    example = "{waves: [[eu-west-1]]}"
    waves: tuple[Annotated[tuple[Name, ...], Field(min_length=1)], ...] = Field(min_length=1)
    bake: Duration = timedelta(minutes=30)

    @field_validator("waves")
    @classmethod
    def _each_once(cls, waves: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
        names = [region for wave in waves for region in wave]
        if len(names) != len(set(names)):
            raise ValueError("each region in one wave only")
        if len(names) > 200:
            raise ValueError("at most 200 regions in all waves together")
        return waves

    @property
    def names(self) -> tuple[str, ...]:
        """All regions in the order of the waves."""
        return tuple(region for wave in self.waves for region in wave)


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
    samples: SamplesSpec | None = None
    approvals: tuple[ApprovalSpec, ...] = ()
    freeze: tuple[FreezeSpec, ...] = ()
    resume: ResumeSpec | None = None
    notify: tuple[NotifySpec, ...] = ()
    git: GitSpec | None = None
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
        names = [stage.name for stage in stages]
        if names != [name for name in ORDER if name in names]:
            raise ValueError(f"each stage at most once, in the order {', '.join(ORDER)}")
        return stages

    @model_validator(mode="after")
    def _with_edges(self) -> Delivery:
        """Engines that are started by this spec count at the thresholds of its SLOs."""
        vllm, edges = self.engine.vllm, added_edges(self.slos, self.sources)
        given = vllm.args.get(BUCKETS, {})
        if not self._tells_edges or not edges or not isinstance(given, Mapping):
            return self
        vllm = vllm.model_copy(update={"args": {**vllm.args, BUCKETS: {**edges, **given}}})
        return self.model_copy(update={"engine": self.engine.model_copy(update={"vllm": vllm})})

    def contradictions(self) -> Iterator[SpecConflict]:
        """What is missing for a stage, a stage that ends too soon, a fleet for other regions, a name of two SLOs."""
        for index, stage in enumerate(self.stages):
            yield from self._unready(stage, ("stages", index, stage.name))
        if isinstance(self.fleet, LocalFleet):
            yield from self._on_this_machine(self.fleet)
        else:
            yield from below(("fleet",), self.fleet.conflicts_with(self._around_fleet()))
            if isinstance(self.fleet, ArgoFleetSpec):
                yield from self._around_image()
        yield from self._around_samples()
        yield from self._around_unattended()
        yield from self._around_slos()
        yield from self._around_sources()
        yield from self._around_look(self.gates.budget.poll_interval)
        stages, weights = [stage.name for stage in self.stages], self.canary.weights if self.canary else ()
        asked = approval_conflicts(self.approvals, self.regions.names, len(self.regions.waves), stages, weights)
        yield from below(("approvals",), asked)
        if self.git and isinstance(self.fleet, LocalFleet):
            expected = "`fleet: {kind: argo, ...}`, or no `git`"
            yield SpecConflict(("git",), "a repository for the local fleet", expected)
        if self.workflow:
            clusters = self.fleet if isinstance(self.fleet, ClusterFleetSpec) else None
            yield from below(("workflow",), workflow_conflicts(self.workflow, clusters))

    def _around_samples(self) -> Iterator[SpecConflict]:
        """Gates that nobody brings anything: a verdict on users' answers or questions needs who keeps some of them."""
        if self.samples and isinstance(self.fleet, TheirsFleetSpec):
            expected = "no `samples`: engines of others keep none"
            yield SpecConflict(("samples",), "samples of users' requests with `fleet.rollout`", expected)
        if self.samples and self.engine.image is not None:
            expected = "an engine that tidegate builds, or no `samples`: an image of your own keeps none"
            yield SpecConflict(("samples",), "samples of users' requests with `engine.image`", expected)
        for index, stage in enumerate(self.stages):
            sources = self.sources_in(stage.name)
            for place, gate in enumerate(getattr(stage, stage.name).gates):
                if "samples" not in sources.get(gate, ()):
                    continue
                settings = self.gates.asked[gate]
                if self.samples is None:
                    found = f"'{gate}' of users' answers, and nobody keeps any"
                    expected = "a section `samples`, or no such gate"
                    yield SpecConflict(("stages", index, stage.name, "gates", place), found, expected)
                elif isinstance(settings, AgreementGate) and "min_similarity" not in settings.model_fields_set:
                    found = "users' answers without `min_similarity`"
                    expected = "how alike two of one version are, at the temperatures that users ask for"
                    yield SpecConflict(("gates", gate), found, expected)

    def sources_in(self, stage: StageKind) -> Mapping[str, tuple[Source, ...]]:
        """Who counts in a stage for the gates that have sources of their own there."""
        return stage_sources(stage, self.gates, samples=self.samples is not None)

    def _around_look(self, asked: timedelta | None) -> Iterator[SpecConflict]:
        """A look that does not have three scrapes of each arm in it."""
        if asked and asked < SCRAPES * self.scrape_interval:
            three, interval = format_duration(SCRAPES * self.scrape_interval), format_duration(self.scrape_interval)
            expected = f"at least {three}, three scrapes: `metrics.scrape_interval` is {interval}"
            yield SpecConflict(("gates", "budget", "poll_interval"), format_duration(asked), expected)

    def _around_unattended(self) -> Iterator[SpecConflict]:
        """A delivery that waits for something else must not lose its regions meanwhile."""
        names = ("metrics", "registry") if isinstance(self.fleet, LocalFleet) else ("api", "metrics", "registry")
        for name in names:
            patience = getattr(self.patience, name)
            if self.fleet.unattended <= patience:
                expected = f"more than `patience.{name}`, which is {format_duration(patience)}"
                yield SpecConflict(("fleet", "unattended"), format_duration(self.fleet.unattended), expected)

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
        if self.engine.image:
            expected = "`fleet: {kind: argo, ...}`, or no image: here engines are processes of the pinned vLLM"
            yield SpecConflict(("engine", "image"), "an image in the local fleet", expected)
        yield from below(("metrics",), self.metrics.of_machine())

    @property
    def asks_engines(self) -> tuple[str, ...]:
        """Stages that ask engines of one arm."""
        return tuple(name for name in ("offline", "load", "shadow") if getattr(self, name))

    def asks_arms(self, region: str) -> bool:
        """Whether single arms of the region can be asked: else nobody asks a canary that has no user yet."""
        return isinstance(self.fleet, LocalFleet) or bool(self.fleet.regions[region].arms or self.arm_services(region))

    def arm_services(self, region: str) -> Mapping[str, str]:
        """The Services that are asked through the region's API server, by arm: where the spec has no address of one."""
        if isinstance(self.fleet, LocalFleet) or self.fleet.regions[region].arms or not self.asks_engines:
            return {}
        return self.fleet.arm_services(self.metadata.name)

    def _around_fleet(self) -> AroundFleet:
        return AroundFleet(
            name=self.metadata.name,
            regions=self.regions.names,
            bake=self.regions.bake,
            accelerator=self.engine.accelerator,
            analysed=bool(self.slos),
            same_image=self.engine.image is not None,
            asks_engines=self.asks_engines,
            copies=self.shadow is not None,
        )

    @property
    def _tells_edges(self) -> bool:
        """Whether engines can be told at which times to count."""
        return not isinstance(self.fleet, TheirsFleetSpec) and is_known(self.engine.vllm)

    def _around_slos(self) -> Iterator[SpecConflict]:
        """A name that two of them have, an engine without the metrics that they are written on, a gate without one."""
        yield from named_twice(self.slos)
        for index, slo in enumerate(self.slos):
            yield from below(
                ("slos", index), slo.unmeasured(self.sources, told=not isinstance(self.fleet, TheirsFleetSpec))
            )
        args = self.engine.vllm.args
        yield from untold_by_engine(self.slos, args, prebuilt=self.engine.image is not None)
        for gate, burn in self.gates.of(BurnRateGate).items():
            yield from below(("gates", gate), slo_conflicts(burn, self.slos))

    def _around_sources(self) -> Iterator[SpecConflict]:
        """Gates that ask what no source tells, and copies of which no label tells whose they are."""
        sources = self.sources
        known, tested = self.gates.asked, tested_kinds()
        asked = set(self.canary.gates) if self.canary else set()
        asked |= {gate for gate, by in self.sources_in("shadow").items() if "proxy" in by} & set(
            self.shadow.gates if self.shadow else ()
        )
        stated = sorted(gate for gate in asked if gate in known and self.gates.kind_of(gate).name in tested)
        yield from below(("gates",), untold_by(sources, self.gates, stated))
        counter = source_of(sources, MetricSignal.REQUESTS)
        if self.shadow and counter and counter.arms and counter.arms.shadow is None:
            where = ("metrics", "sources", sources.index(counter), "arms", "shadow")
            expected = "the value of copies (canary's, where copies are counted as the canary's), or no stage shadow"
            yield SpecConflict(where, "nothing, and a stage that copies requests", expected)

    def _unready(self, stage: StageEntry, where: Loc) -> Iterator[SpecConflict]:
        known, kinds = self.gates.asked, kinds_of_stage(stage.name)
        usable = [gate for gate in known if self.gates.kind_of(gate).name in kinds]
        for place, gate in enumerate(getattr(stage, stage.name).gates):
            at = (*where, "gates", place)
            if gate not in known and gate in GATE_KINDS and gate not in kinds:
                yield SpecConflict(at, f"'{gate}'", f"a gate of kind {', '.join(kinds)}")
            elif gate not in known:
                near = get_close_matches(gate, usable, n=1)
                expected = f"settings at gates.{gate}" if gate in kinds or not near else f"{near[0]} (the nearest name)"
                yield SpecConflict(at, f"'{gate}' without settings", expected)
            elif gate not in usable:
                found = f"'{gate}' of kind {self.gates.kind_of(gate).name}"
                yield SpecConflict(at, found, f"a gate of kind {', '.join(kinds)}")
        if stage.offline and stage.offline.dataset is None:
            for gate in (gate for gate in stage.offline.gates if isinstance(known.get(gate), QualityGate)):
                yield SpecConflict(where, f"no dataset, and gate {gate}", "dataset: the golden set that is asked")
        sources = self.sources_in(stage.name)
        probes = any("probe" in sources.get(gate, ()) for gate in stage.shadow.gates) if stage.shadow else False
        if probes and not self.has_golden_set and not (self.traffic and self.traffic.prompts):
            yield SpecConflict(where, "no prompts to pair", "prompts at traffic.prompts")
        if stage.load:
            yield from self._around_load(stage.load, where)
        timed = stage.shadow or stage.canary
        if timed and timed.at_least > timed.within:
            end = f"at most `within`, which is {format_duration(timed.within)}"
            yield SpecConflict((*where, "at_least"), format_duration(timed.at_least), end)

    def _around_load(self, load: LoadStage, where: Loc) -> Iterator[SpecConflict]:
        """As `load_conflicts`; and a gate on cost without a price."""
        found = load_conflicts(
            load,
            has_prompts=bool(self.has_golden_set or (self.traffic and self.traffic.prompts)),
            in_workflow=self.workflow is not None,
        )
        yield from below(where, found)
        for place, gate in enumerate(load.gates):
            if gate in self.gates.of(CostGate) and self.cost is None:
                expected = "`cost: {per_engine_hour: ...}`, by which tokens are priced"
                yield SpecConflict((*where, "gates", place), "a gate on cost without a price", expected)

    @property
    def counted_by(self) -> CountedBy:
        """Who counts requests unless an SLO says otherwise: every engine of this machine is behind a proxy of ours."""
        return CountedBy.PROXY if isinstance(self.fleet, LocalFleet) else CountedBy.ENGINE

    @property
    def sources(self) -> Sequence[MetricSource]:
        """Which series are read: as the spec says, or of engines of others by what tells them apart."""
        if self.metrics.sources or not isinstance(self.fleet, TheirsFleetSpec):
            return self.metrics.sources
        return self.fleet.sources

    @property
    def scrape_interval(self) -> timedelta:
        """Between two scrapes of an engine."""
        usual = ON_THIS_MACHINE if isinstance(self.fleet, LocalFleet) else IN_CLUSTERS
        return self.metrics.scrape_interval or usual

    @property
    def look(self) -> timedelta:
        """Between two batches of evidence: as asked, else three scrapes, and 10 s at least."""
        return self.gates.budget.poll_interval or max(SCRAPES * self.scrape_interval, USUAL_LOOK)

    @property
    def offline(self) -> OfflineStage | None:
        """The offline stage, when there is one."""
        return next((stage.offline for stage in self.stages if stage.offline), None)

    @property
    def has_golden_set(self) -> bool:
        """Whether there are questions with known answers."""
        return bool(self.offline and self.offline.dataset)

    @property
    def load(self) -> LoadStage | None:
        """The load stage, when there is one."""
        return next((stage.load for stage in self.stages if stage.load), None)

    @property
    def shadow(self) -> ShadowStage | None:
        """The shadow stage, when there is one."""
        return next((stage.shadow for stage in self.stages if stage.shadow), None)

    @property
    def canary(self) -> CanaryStage | None:
        """The canary stage, when there is one."""
        return next((stage.canary for stage in self.stages if stage.canary), None)
