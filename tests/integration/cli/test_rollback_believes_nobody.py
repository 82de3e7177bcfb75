"""`tidegate rollback` goes where regions say, whatever anybody wrote into MLflow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from fakes.clusters.region import an_image
from fakes.clusters.served import Clusters
from fakes.engines.local_fleet import delivery as delivery_runs
from fakes.engines.local_fleet import stand_in
from fakes.kube.requests import WRITES
from fakes.terminal import Said, Tidegate
from mlflow import MlflowClient

from registry.conventions import CARRIER, CHAMPION, ENGINE_IMAGE, HEARTBEAT, MODEL, STATE, VERSION, experiment_name
from registry.ports import embedded_uri
from rollouts.adapters import host_client
from rollouts.adapters.host_client import FleetHost
from rollouts.kube.resources import ROLLOUTS

pytestmark = pytest.mark.slow(reason="a fleet host or clusters, MLflow that breaks, and a process for each command")

REGIONS = ("eu-west-1", "us-east-1")
EVIL = f"evil.example.net/miner@sha256:{'6' * 64}"


@dataclass
class Scene:
    """Two regions that served version 1, and MLflow, in which somebody writes."""

    tidegate: Tidegate
    there: Clusters
    client: MlflowClient
    name: str

    def rollback(self, *options: str) -> Said:
        return self.tidegate("rollback", "delivery.yaml", *options)

    def writes(self) -> int:
        return sum(call.verb in WRITES for region in REGIONS for call in self.there.servers.api(region).calls)

    def images(self) -> set[str]:
        """That regions ask for."""
        found = [
            self.there.servers.do(lambda one=one: self.there.region(one).cluster.get(ROLLOUTS, "support-llm"))
            for one in REGIONS
        ]
        return {each["spec"]["template"]["spec"]["containers"][0]["image"] for each in found}

    def promote(self, *regions: str) -> None:
        """A delivery of version 2 has promoted them, and its process died."""
        for region in regions:
            fleet = self.there.region(region).open()
            self.there.servers.run(fleet.deploy(an_image("2")))
            self.there.servers.run(fleet.promote())
            self.there.servers.run(fleet.leave())

    def experiment(self) -> str:
        known = self.client.get_experiment_by_name(experiment_name(self.name))
        return str(known.experiment_id if known else self.client.create_experiment(experiment_name(self.name)))


@pytest.fixture
def scene(tidegate: Tidegate, on_clusters: Callable[..., Clusters], name: str, state: Path) -> Scene:
    there = on_clusters(*REGIONS)
    there.serve("1")
    return Scene(tidegate, there, MlflowClient(embedded_uri(state)), name)


def evil_version(scene: Scene) -> None:
    """A version 3 with an image of somebody's own, and a run by which it was the champion."""
    scene.client.create_model_version(scene.name, "file:///nowhere")
    scene.client.set_model_version_tag(scene.name, "3", ENGINE_IMAGE, EVIL)
    carrier = {"mark": "evil", "at": "2026-01-01T00:00:00Z", "host": "ci", "pid": 1, "machine": ""}
    tags = {MODEL: scene.name, VERSION: "2", CHAMPION: "3", CARRIER: json.dumps(carrier), STATE: "running"}
    scene.client.create_run(scene.experiment(), tags=tags | {HEARTBEAT: "2026-01-01T00:00:00+00:00"})


def malformed_run(scene: Scene) -> None:
    scene.client.create_run(scene.experiment(), tags={MODEL: scene.name})


def nothing(_: Scene) -> None:
    """As where somebody has deleted the delivery's run."""


@pytest.mark.parametrize("written", [evil_version, malformed_run])
def test_regions_at_rest_are_moved_nowhere(scene: Scene, written: Callable[[Scene], None]) -> None:
    scene.there.serve("2")
    written(scene)
    before = scene.writes()
    said = scene.rollback()
    assert (said.code, said.out) == (0, "eu-west-1: version 2\nus-east-1: version 2\n"), said.err
    assert (scene.there.versions(), scene.writes()) == (["2", "2"], before)


@pytest.mark.parametrize(
    ("written", "promoted"), [(malformed_run, REGIONS[:1]), (nothing, REGIONS), (evil_version, REGIONS)]
)
def test_what_an_open_delivery_has_promoted_goes_back_once(
    scene: Scene, written: Callable[[Scene], None], promoted: tuple[str, ...]
) -> None:
    scene.promote(*promoted)
    written(scene)
    said = scene.rollback()
    assert (said.code, said.out) == (0, "eu-west-1: version 1\nus-east-1: version 1\n"), said.err
    assert (scene.there.versions(), EVIL in scene.images()) == (["1", "1"], False)
    before = scene.writes()
    assert scene.rollback().code == 0
    assert (scene.there.versions(), scene.writes()) == (["1", "1"], before)


def test_an_image_that_the_trust_file_does_not_allow_is_started_by_no_rollback(scene: Scene, tmp_path: Path) -> None:
    scene.client.set_model_version_tag(scene.name, "2", ENGINE_IMAGE, EVIL)
    trust = tmp_path / "operator.yaml"
    allowed = {"engines": {"images": ["registry.example/engines"]}}
    trust.write_text(yaml.safe_dump({"apiVersion": "tidegate/v1", "kind": "Trust", **allowed}))
    said = scene.rollback("--to", "2", "--start", "--yes", "--trust", str(trust))
    assert said.code != 0
    assert "is from none of the allowed repositories" in said.err
    assert (scene.there.versions(), EVIL in scene.images()) == (["1", "1"], False)


def test_a_trust_file_that_nobody_named_keeps_nobody_from_going_back(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "trust.yaml").write_text("kind: Trust\n")
    scene.promote(*REGIONS)
    said = scene.rollback("--to", "2", "--start", "--yes")
    assert (said.code, "a trust file next to a spec does not count" in said.err) == (2, True)
    assert scene.rollback().code == 0
    assert scene.there.versions() == ["1", "1"]


@dataclass
class ThisMachine:
    """A fleet of this machine, as `tidegate fleet up` starts it."""

    state: Path
    host: FleetHost | None = None

    async def up(self) -> FleetHost:
        await self.down()
        self.host = await host_client.start(self.state, dict.fromkeys(REGIONS), owned=True)
        return self.host

    async def down(self) -> None:
        if self.host is not None:
            await self.host.stop()

    async def promote_one(self, *, and_end: bool = False) -> None:
        """A delivery of version 7 has promoted eu-west-1, is on trial in us-east-1, and its process died; with
        `and_end` the host before it, which rolls back no trial any more."""
        with delivery_runs(self.state):
            host = await self.up()
            for region in REGIONS:
                for version in ("6", "7"):
                    await host.fleet(region).deploy(stand_in(version))
            await host.fleet(REGIONS[0]).promote()
            await host.close()
            if and_end:
                await self.down()

    async def serve_anew(self) -> None:
        """The host has ended too, and another one serves what somebody has made the champion."""
        host = await self.up()
        await asyncio.gather(*(host.fleet(region).deploy(stand_in("7")) for region in REGIONS))
        await host.close()


def test_a_fleet_of_this_machine_goes_back_by_what_its_host_keeps(
    tidegate: Tidegate, delivery: Path, tmp_path: Path
) -> None:
    machine = ThisMachine(tmp_path / "own")
    asyncio.run(machine.promote_one())
    try:
        (machine.state / "mlflow.db").write_bytes(b"no database")
        for _ in range(2):
            said = tidegate("rollback", "delivery.yaml", "--state", str(machine.state))
            assert (said.code, said.out) == (0, "eu-west-1: version 6\nus-east-1: version 6\n"), said.err
        asyncio.run(machine.promote_one(and_end=True))
        asyncio.run(machine.serve_anew())
        said = tidegate("rollback", "delivery.yaml", "--state", str(machine.state))
        assert (said.code, said.out) == (0, "eu-west-1: version 6\nus-east-1: version 6\n"), said.err
    finally:
        asyncio.run(machine.down())
