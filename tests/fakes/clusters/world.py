"""A whole delivery in memory, through fleets on Kubernetes: three clusters, one time, one story."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import yaml
from fakes.clock import SimulatedTime
from fakes.clusters.region import ClusterRegion, a_fleet, an_image
from fakes.delivery.identities import FakeIdentities
from fakes.delivery.ledger import FakeLedger, OffLoop
from fakes.delivery.world import CHALLENGER, CHAMPION, AliasBook, NewEvidence, Recorder, planned

from pipelines.events.artifacts import Trials
from pipelines.events.journal import Journal
from pipelines.events.writer import WriterLimits
from pipelines.model import Plan, Result
from pipelines.plan.region_objects import rendering
from pipelines.run.context import Context
from pipelines.run.engine import deliver
from pipelines.run.stages import STAGES
from pipelines.spec.delivery import Delivery
from pipelines.spec.policy import golden_set
from registry.model import EngineRecord, ModelVersion
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.model import Engine, ImageLaunch
from tidegate.core.spec import parse_spec
from tidegate.testing import FakeChat, FakeTokenizer

DEMO = Path(__file__).parents[3] / "examples" / "demo"
REGIONS = ("eu-west-1", "us-east-1", "ap-south-1")


def demo_on_clusters(*waves: tuple[str, ...]) -> Delivery:
    """The demo's spec, but for its regions and its fleet: clusters, by default three in three waves."""
    demo = yaml.safe_load((DEMO / "delivery.yaml").read_text())
    chosen = [list(wave) for wave in waves or [(region,) for region in REGIONS]]
    demo["regions"]["waves"] = chosen
    # The demo looks every 6 s, which is three scrapes of its own machine's Prometheus.
    demo["metrics"] = {**demo.get("metrics", {}), "scrape_interval": "2s"}
    demo["fleet"] = a_fleet(*(region for wave in chosen for region in wave)).model_dump(mode="json", exclude_unset=True)
    return parse_spec(yaml.safe_dump(demo), Delivery, file="delivery.yaml")


class Images:
    """`Engines` whose images were pushed before."""

    async def prepare(
        self, version: ModelVersion, progress: Callable[[str], None], record: EngineRecord | None = None
    ) -> Engine:
        engine = an_image(version.version, digest=version.digest)
        if record is None:
            return engine
        launch = ImageLaunch(arguments=tuple(f"{name}={value}" for name, value in record.settings.items()))
        return engine.model_copy(update={"version": record.name, "launch": launch})

    def folder(self, version: ModelVersion) -> Path:
        return Path("/nowhere")


class ClusterWorld:
    """Everything that a delivery to clusters touches. `given` and `when` are plain attributes."""

    def __init__(self, folder: Path, spec: Delivery | None = None, *, users_per_second: float = 20.0) -> None:
        self.spec = spec or demo_on_clusters()
        self.time = SimulatedTime()
        clusters = _clusters(self.spec)
        self.regions = {
            name: ClusterRegion(
                name,
                spec=clusters,
                time=self.time,
                render=rendering(self.spec, clusters, name),
                users_per_second=users_per_second,
            )
            for name in self.spec.regions.names
        }
        self.registry = AliasBook()
        self.ledger = FakeLedger(self.time)
        self.recorder = Recorder()
        self.chat = FakeChat({url: right for region in REGIONS for url in (stable_url(region), canary_url(region))})
        self.evidence = NewEvidence()
        for role, version in (
            ("stable", CHAMPION),
            ("stable", CHALLENGER),
            ("shadow", CHALLENGER),
            ("canary", CHALLENGER),
        ):
            self.evidence.serves(role, version)
        self.limits = WriterLimits()
        self._folder = folder

    @property
    def plan(self) -> Plan:
        prompts = len(golden_set(self.spec, DEMO))
        return planned(self.spec, prompts)

    def context(self) -> Context:
        registry = OffLoop(self.registry)
        journal = Journal(OffLoop(self.ledger), self.time, [self.recorder], registry=registry, limits=self.limits)
        return Context(
            spec=self.spec,
            plan=self.plan,
            stages=STAGES,
            folder=DEMO,
            clock=self.time,
            journal=journal,
            registry=registry,
            engines=Images(),
            fleets={name: region.fleet for name, region in self.regions.items()},
            chat=self.chat,
            tokenizer=FakeTokenizer(),
            proxy=self.evidence,
            trials=Trials(self._folder / self.ledger.delivery, journal),
            identities=FakeIdentities(),
        )

    async def deliver(self) -> Result:
        return await deliver(self.context())

    async def deliver_again(self) -> Result:
        """The next delivery of the same version."""
        self.ledger = FakeLedger(self.time, f"{self.ledger.delivery}-again")
        return await self.deliver()

    def when(self, step: str, kind: str, reaction: Callable[[], object]) -> None:
        """Call `reaction` the first time that step says that kind of thing."""
        self.recorder.reactions[step, kind] = reaction

    def said(self, kind: str) -> list[str]:
        """The steps that said it, in order."""
        return [event.step for event in self.recorder.events if event.kind == kind]

    def stable_versions(self) -> dict[str, str]:
        """What users of each region are on."""
        return {name: region.versions()[0] for name, region in self.regions.items()}


def right(prompt: str) -> str:
    """What a good version answers to the golden set, and to anything else."""
    return _EXPECTED.get(prompt, "red orange yellow")


def stable_url(region: str) -> str:
    return f"https://stable.{region}.example"


def canary_url(region: str) -> str:
    return f"https://canary.{region}.example"


def _clusters(spec: Delivery) -> ArgoFleetSpec:
    assert isinstance(spec.fleet, ArgoFleetSpec), "the spec is for this machine"
    return spec.fleet


_GOLDEN = [json.loads(line) for line in (DEMO / "golden.jsonl").read_text().splitlines()]
_EXPECTED = {entry["prompt"]: entry["expected"] for entry in _GOLDEN}
