"""One model on the bed: its versions, its spec, the users of its regions, and the commands that deliver it."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml
from cluster.bed import Bed
from cluster.endpoints import Endpoints, service
from cluster.users import Asked, Record
from e2e.machine import Command
from fakes.waiting import PATIENCE_SECONDS, eventually, until

from pipelines.adapters.clusters import cluster_fleet
from pipelines.plan.region_objects import region_objects, region_release
from pipelines.spec.delivery import Delivery
from registry.conventions import ENGINE_IMAGE
from registry.deliveries import MlflowDeliveries
from registry.model import DeliverySummary, Event
from registry.versions import MlflowRegistry
from rollouts.cluster.carrier import Carrier
from rollouts.cluster.fleet import ArgoFleet
from rollouts.kube.resources import PODS, resource_of
from rollouts.manifests.conventions import RenderPart, stable_service
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.model import Engine, RegionPhase, RegionState
from tidegate.core.clock import SystemClock
from tidegate.core.names import DELIVERY, VERSION
from tidegate.core.spec import load_spec
from tidegate.testing import write_tiny_model

RATE = 10.0
"""Users' requests a second, in each region."""
QUESTIONS = tuple(f"What is {number} minus {number - 4}?" for number in range(4, 20))

GATES: Mapping[str, Any] = {
    "budget": {"poll_interval": "6s"},
    "latency": {"metric": "ttft", "quantile": 0.5, "max_increase": "80%", "tolerance": "25%", "min_requests": 40},
    "errors": {"max_increase": "10pp", "min_requests": 40},
    "quality": {"scorer": "contains", "max_drop": 0.3, "min_prompts": 10},
    "agreement": {"min_similarity": 0.4, "min_coverage": 0.5, "min_pairs": 10},
}
"""Margins that a machine of two cores can prove in a minute, and that noise does not reach."""

STAGES: Sequence[Mapping[str, Any]] = (
    {"offline": {"dataset": "golden.jsonl", "gates": ["quality"]}},
    {"shadow": {"pairs_per_second": 4, "at_least": "5s", "within": "15m", "gates": ["latency", "errors", "agreement"]}},
    {"canary": {"weights": [50], "within": "15m", "gates": ["latency", "errors"]}},
)


class DeliveredModel:
    """A registered model, and everything around its deliveries."""

    repositories: tuple[str, ...] = ()
    """That its engines may come from; any when empty."""

    def __init__(self, bed: Bed, name: str, waves: Sequence[Sequence[str]]) -> None:
        self.bed, self.name = bed, name
        self.regions = tuple(region for wave in waves for region in wave)
        self.folder = bed.folder / name
        self.folder.mkdir()
        self.registry = MlflowRegistry(bed.tracking_uri)
        self.deliveries = MlflowDeliveries(bed.tracking_uri)
        self.endpoints: dict[str, Endpoints] = {}
        self._waves = waves
        self._records = {region: Record(self.folder / f"users-{region}.jsonl") for region in self.regions}
        self._write_spec()

    # -- what is delivered

    def version(self, alias: str | None = "challenger", **ways: Any) -> str:
        """Register one more version that behaves in these ways, with its engine's image; its number."""
        export = self.export()
        (export / "standin.json").write_text(json.dumps(ways), encoding="utf-8")
        version = self.registry.register(self.name, export, alias=alias)
        image = self.bed.push_engine(self.name, version.version, export)
        self.registry.mark(version, {ENGINE_IMAGE: image})
        return version.version

    def export(self) -> Path:
        """A Hugging Face folder unlike every other of this model."""
        number = len(list(self.folder.glob("export-*"))) + 1
        return write_tiny_model(self.folder / f"export-{number}", seed=number)

    def serve(self, version: str) -> None:
        """The first version of all regions, as an administrator brings it."""
        found = self.registry.resolve(self.name, version)
        engine = Engine(
            version=version, digest=found.digest, model=self.name, image=self.registry.tags(found)[ENGINE_IMAGE]
        )

        async def deploy() -> None:
            await asyncio.gather(*(self.set_up(region, engine) for region in self.regions))
            async with self.fleets() as fleets:
                await asyncio.gather(*(fleet.deploy(engine) for fleet in fleets.values()))

        asyncio.run(deploy())

    async def set_up(self, region: str, engine: Engine, parts: Sequence[RenderPart] = (RenderPart.SETUP,)) -> None:
        """An administrator's part of the region's objects: accounts, rights, policies."""
        spec = load_spec(self.spec, Delivery)
        assert isinstance(spec.fleet, ArgoFleetSpec)
        release = region_release(spec, region, engine, repositories=self.repositories)
        client = self.bed.client(region)
        for body in region_objects(spec, spec.fleet, release, parts=parts).objects:
            await client.apply(body, force=True)
            if not resource_of(body).namespaced:
                self.bed.leaves_behind(region, resource_of(body), body["metadata"]["name"])
        await client.close()

    def region(self, name: str) -> RegionState:
        """What the fleet of that region says now."""

        async def observe() -> RegionState:
            async with self.fleets() as fleets:
                return await fleets[name].observe()

        return asyncio.run(observe())

    def pods(self, region: str) -> dict[str, str]:
        """The pods of that region, with the version of each."""
        found = self.bed.ask(region, lambda client: client.list(PODS, labels=f"{DELIVERY}={self.name}"))
        return {pod["metadata"]["name"]: pod["metadata"]["labels"].get(VERSION, "") for pod in found}

    # -- its users

    @contextmanager
    def users(self, *, rate: float = RATE, prompts: Sequence[str] = ()) -> Iterator[None]:
        """People who ask in every region, and a watch that the stable always has engines."""
        with ExitStack() as stack:
            for region in self.regions:
                watch = Endpoints(lambda region=region: self.bed.client(region), service(stable_service(self.name)))
                self.endpoints[region] = watch
                stack.callback(watch.end)
                stack.callback(self._start_users(region, rate, prompts))
            yield

    def asked(self, region: str | None = None) -> list[Asked]:
        """Every request that is over, of one region or of all."""
        regions = (region,) if region else self.regions
        return sorted((each for name in regions for each in self._records[name].read()), key=lambda one: one.started)

    @staticmethod
    def now() -> float:
        """Unix time in seconds, as users' requests have it."""
        return time.time()

    def _start_users(self, region: str, rate: float, prompts: Sequence[str]) -> Callable[[], None]:
        script = str(Path(__file__).with_name("users.py"))
        words = [self.bed.entries[region], self.host, self.name, str(rate), str(self._records[region].path), *prompts]
        process = subprocess.Popen([sys.executable, script, *words], stdin=subprocess.DEVNULL)
        until(f"users of {region} are served", lambda: any(not one.failed for one in self.asked(region)))

        def end() -> None:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_SECONDS)

        return end

    # -- commands

    @cached_property
    def host(self) -> str:
        return f"{self.name}.example"

    def start(self, *arguments: str) -> Command:
        """Type a command and let it run."""
        own = {**self.bed.environment, "TIDEGATE_STATE": str(self.folder / "state")}
        return Command.typed(arguments, self.folder, own)

    def deliver(self, *arguments: str) -> Command:
        """`tidegate deliver`, which runs."""
        return self.start("deliver", "delivery.yaml", *arguments)

    def delivery(self) -> DeliverySummary:
        """The newest."""
        return self.deliveries.deliveries(self.name)[0]

    def events(self, kind: str = "") -> list[Event]:
        """What the newest delivery's ledger says."""
        return [event for event in self.deliveries.events(self.delivery().id) if not kind or event.kind == kind]

    def told_here(self) -> list[Event]:
        """The same by the file of the machine that delivers, which needs no ledger."""
        files = (self.folder / "state" / "deliveries").glob("*/events.jsonl")
        newest = max(files, key=lambda path: path.stat().st_mtime)
        return [Event.model_validate_json(line) for line in newest.read_text(encoding="utf-8").splitlines()]

    def steps(self) -> list[str]:
        """The ids of a delivery's steps, in order."""
        planned = self.start("plan", "delivery.yaml", "--output", "json").finish()
        assert planned.code == 0, planned.err
        return [step["id"] for step in json.loads(planned.out)["steps"]]

    def reaches(self, step: str, running: Command) -> None:
        """The delivery that runs has begun that step."""

        def begun() -> bool:
            assert running.runs, f"it ended before {step}: {running.finish()}"
            return any(event.step == step for event in self._told())

        until(f"{step} begins", begun)

    def users_are_on(self, version: str, region: str, running: Command) -> None:
        """Users have met that version, and the delivery that runs has seen them there: its gates judge from now on."""

        def met() -> bool:
            assert running.runs, running.finish()
            return any(each.version == version for each in self.asked(region)) and any(
                event.kind == "traffic" and event.step.startswith(f"canary@{region}") for event in self.told_here()
            )

        until(f"users of {region} are on version {version}", met)

    def exactly(self, version: str, *, previous: str | None = None) -> None:
        """Every region serves that version alone, with no canary."""

        async def wait() -> None:
            async with self.fleets() as fleets:
                for region, fleet in fleets.items():
                    look = partial(_serves, fleet, version, previous)
                    await eventually(f"{region} serves version {version} alone", look)

        asyncio.run(wait())

    def _told(self) -> list[Event]:
        """The newest delivery's events; none before there is one that runs."""
        found = self.deliveries.deliveries(self.name)
        return self.deliveries.events(found[0].id) if found and found[0].ended is None else []

    # -- the spec

    @property
    def spec(self) -> Path:
        return self.folder / "delivery.yaml"

    def change(self, **parts: Any) -> None:
        """Replace whole keys at the top of the spec."""
        said = yaml.safe_load(self.spec.read_text(encoding="utf-8"))
        self.spec.write_text(yaml.safe_dump(said | parts, sort_keys=False), encoding="utf-8")

    def _write_spec(self) -> None:
        golden = [{"prompt": question, "expected": "four"} for question in QUESTIONS]
        (self.folder / "golden.jsonl").write_text("\n".join(map(json.dumps, golden)) + "\n", encoding="utf-8")
        (self.folder / "prompts.txt").write_text("\n".join(QUESTIONS) + "\n", encoding="utf-8")
        spec = {
            "apiVersion": "tidegate/v1",
            "kind": "Delivery",
            "metadata": {"name": self.name},
            "model": {"name": self.name},
            "engine": {"vllm": {"version": "0.32.0"}},
            "gates": GATES,
            "metrics": {"scrape_interval": "2s"},
            "stages": list(STAGES),
            "regions": {"waves": [list(wave) for wave in self._waves], "bake": "5s"},
            "fleet": self.fleet(),
            # A story waits for a region that stays away no longer than it has to.
            "patience": {"api": "60s", "back": "60s"},
            "traffic": {"requests_per_second": RATE, "prompts": "prompts.txt", "max_tokens": 8},
        }
        self.spec.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")

    def fleet(self) -> dict[str, Any]:
        """As the spec has it before anybody changes it."""
        return {
            "kind": "argo",
            "namespace": self.bed.namespace,
            "gateway": {
                **{"name": "users", "namespace": self.bed.gateway_namespace},
                **{"hosts": [self.host], "timeout": "60s"},
            },
            "replicas": 2,
            "canary": {"replicas": 1, "after_abort": "20s"},
            "previous": {"keep": "30m"},
            "pod": {
                **{"cpu": "20m", "memory": "192Mi", "shared_memory": "16Mi", "cache": {"size": "64Mi"}},
                **{"start_within": "10m", "drain": "8s", "linger": "2s"},
            },
            "regions": {region: self._place(region) for region in self.regions},
        }

    def _place(self, region: str) -> dict[str, Any]:
        there = self.bed.around.clusters[region]
        return {
            "context": there.context,
            "entry": self.bed.entries[region],
            "stable_url": self.bed.forward(region, f"{self.name}-stable"),
            "canary_url": self.bed.forward(region, f"{self.name}-canary"),
            "prometheus": there.prometheus,
        }

    @asynccontextmanager
    async def fleets(self) -> AsyncIterator[Mapping[str, ArgoFleet]]:
        """The fleets of the spec's regions, while the block lasts, in an administrator's hands."""
        spec = load_spec(self.spec, Delivery)
        assert isinstance(spec.fleet, ArgoFleetSpec)
        async with AsyncExitStack() as stack:
            fleets = {}
            for region in spec.regions.names:
                client = self.bed.client(region)
                stack.push_async_callback(client.close)
                fleets[region] = cluster_fleet(
                    spec,
                    spec.fleet,
                    region,
                    cluster=client,
                    clock=SystemClock(),
                    carrier=Carrier(token=uuid4().hex, who="an administrator"),
                )
                stack.push_async_callback(fleets[region].leave)
            yield fleets


async def _serves(fleet: ArgoFleet, version: str, previous: str | None) -> bool:
    state = await fleet.observe()
    warm = state.previous.version if state.previous else None
    stable = state.stable.version if state.stable else None
    steady = state.phase is RegionPhase.STEADY and state.canary is None and state.weight == 0
    return steady and stable == version and (previous is None or warm == previous)
