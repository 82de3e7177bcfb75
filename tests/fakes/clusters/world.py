"""A whole delivery in memory, through fleets on Kubernetes: three clusters, one time, one story."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import yaml
from fakes.clock import SimulatedTime
from fakes.clusters.region import ClusterRegion, a_fleet, an_image
from fakes.delivery.world import World

from pipelines.plan.region_objects import rendering
from pipelines.spec.delivery import Delivery
from registry.model import EngineRecord, ModelVersion
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.model import Engine, ImageLaunch
from tidegate.core.spec import parse_spec
from tidegate.testing import FakeChat

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


class ClusterWorld(World):
    """Everything that a delivery to clusters touches. `given` and `when` are plain attributes."""

    def __init__(self, folder: Path, spec: Delivery | None = None, *, users_per_second: float = 20.0) -> None:
        self.time = SimulatedTime()
        super().__init__(folder, spec or demo_on_clusters(), clock=self.time)  # type: ignore[arg-type]  # it sleeps too
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
        self.fleets = {name: region.fleet for name, region in self.regions.items()}  # type: ignore[misc]  # also fleets
        self.chat = FakeChat({url: right for region in REGIONS for url in (stable_url(region), canary_url(region))})
        self.engines, self.loads = Images(), None  # type: ignore[assignment]
        self.folder, self.disk = DEMO, folder / self.ledger.delivery

    def stable_versions(self) -> dict[str, str | None]:
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
