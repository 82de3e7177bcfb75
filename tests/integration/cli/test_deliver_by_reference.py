"""A whole delivery to a Rollout of others, and back: real commands, an API server on a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest
import yaml
from fakes.argo.simulation import Simulation
from fakes.clock import RealTime
from fakes.clusters.region import NAMESPACE, a_release, an_image
from fakes.clusters.served import behind, delivery_to, mark_images, write_golden_set
from fakes.kube.api import Api
from fakes.kube.cluster import FakeCluster
from fakes.kube.server import FakeServers, serving
from fakes.services.chat_servers import engines
from fakes.terminal import Tidegate

from registry.conventions import ENGINE_IMAGE
from registry.ports import embedded_uri
from registry.versions import MlflowRegistry
from rollouts.kube.resources import LEASES, ROLLOUTS, resource_of
from tidegate.core.model import Json

REGION, THEIRS = "eu-west-1", "chat"
STEPS = [{"setCanaryScale": {"replicas": 1}}, {"pause": {}}, {"setWeight": 50}, {"pause": {}}]


@pytest.fixture
def servers(
    registered: Path, tmp_path: Path, name: str, state: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeServers]:
    """A region where a team has applied its Rollout, which serves version 1; the spec names it."""
    write_golden_set(tmp_path)
    mark_images(MlflowRegistry(embedded_uri(state)), name)
    cluster = FakeCluster(REGION, namespace=NAMESPACE, time=RealTime())
    simulation = Simulation(cluster, start_seconds=0.2, reacts=False)
    with (
        engines(tmp_path / "champion" / "model") as engine,
        serving({REGION: behind(Api(cluster), arms_at(engine.url))}, tmp_path, namespace=NAMESPACE) as servers,
    ):
        monkeypatch.setenv("KUBECONFIG", str(servers.kubeconfig))
        registered.write_text(yaml.safe_dump(spec_of(name, engine.url)))
        running = servers.do(lambda: asyncio.ensure_future(simulation.run()))
        servers.do(lambda: _applied(cluster))
        servers.run(_serves(cluster))
        yield servers
        servers.do(running.cancel)


def arms_at(engine: str) -> dict[str, str]:
    """They have no addresses in the spec: the API server leads to them."""
    return {f"{THEIRS}-{arm}": f"{engine}/{arm}" for arm in ("stable", "canary")}


def spec_of(name: str, engine: str) -> Json:
    rollout = {"name": THEIRS, "container": "vllm", "route": THEIRS}
    rollout |= {"stable_service": f"{THEIRS}-stable", "canary_service": f"{THEIRS}-canary"}
    spec = delivery_to([[REGION]], name=name, engine=engine)
    spec["fleet"]["rollout"] = rollout
    del spec["fleet"]["gateway"]
    for key in ("stable_url", "canary_url"):
        del spec["fleet"]["regions"][REGION][key]
    return spec


def _applied(cluster: FakeCluster) -> None:
    *others, rollout = deepcopy(a_release(THEIRS, NAMESPACE))
    rollout["spec"]["strategy"]["canary"] |= {"steps": STEPS, "scaleDownDelaySeconds": 600}
    rollout["spec"]["template"]["spec"]["containers"][0]["image"] = an_image("1").image
    for body in (*others, rollout):
        cluster.create(resource_of(body), body, namespace=NAMESPACE, manager="kubectl-client-side-apply")


async def _serves(cluster: FakeCluster) -> None:
    while not (cluster.get(ROLLOUTS, THEIRS).get("status") or {}).get("stableRS"):
        await asyncio.sleep(0.1)


def image_of(servers: FakeServers) -> str:
    found = servers.do(lambda: servers.api(REGION).cluster.get(ROLLOUTS, THEIRS))
    return str(found["spec"]["template"]["spec"]["containers"][0]["image"])


@pytest.mark.slow(reason="a process for each command")
def test_a_delivery_to_their_rollout_and_back(tidegate: Tidegate, servers: FakeServers, name: str) -> None:
    planned = tidegate("plan", "delivery.yaml")
    assert (planned.code, "no region has a guard" in planned.out) == (0, True), planned
    said = tidegate("deliver", "delivery.yaml", "--output", "json")
    assert (said.code, said.json["ending"]) == (0, "delivered"), said.err
    assert image_of(servers) == an_image("2").image
    told = tidegate("status", "delivery.yaml").out.splitlines()
    assert told[1].startswith("eu-west-1: steady, stable 2")
    back = tidegate("rollback", "delivery.yaml", "--to", "previous", "--yes")
    assert (back.code, back.out) == (0, "eu-west-1: version 1\n"), back.err
    assert image_of(servers) == an_image("1").image
    (lease,) = servers.do(lambda: servers.api(REGION).cluster.list(LEASES))
    assert lease["metadata"]["name"] == "support-llm-carrier"


def test_what_does_not_fit_is_told_by_plan_with_its_patch(
    tidegate: Tidegate, servers: FakeServers, name: str, state: Path
) -> None:
    def no_dark_step(body: Json) -> None:
        body["spec"]["strategy"]["canary"]["steps"] = [{"setWeight": 50}, {"pause": {}}]

    cluster = servers.api(REGION).cluster
    servers.do(lambda: cluster.edit(ROLLOUTS, THEIRS, lambda body: no_dark_step(body) and None))
    said = tidegate("plan", "delivery.yaml")
    told = "`deliver` would not begin: eu-west-1: smoke, offline come before users"
    assert (told in said.out, '"setCanaryScale"' in said.out, said.code != 0) == (True, True, True), said
    registry = MlflowRegistry(embedded_uri(state))
    registry.mark(registry.resolve(name, "1"), {ENGINE_IMAGE: "registry.example/other@sha256:" + "7" * 64})
    assert "what serves is no version that is known here" in tidegate("plan", "delivery.yaml").out
    assert image_of(servers) == an_image("1").image


def test_doctor_and_render_know_a_rollout_of_others(tidegate: Tidegate, servers: FakeServers) -> None:
    well = tidegate("doctor", "delivery.yaml", "-o", "json")
    assert (well.code, well.json[0]["findings"]) == (0, []), well
    cluster = servers.api(REGION).cluster
    servers.do(
        lambda: cluster.edit(ROLLOUTS, THEIRS, lambda body: body["spec"].update(rollbackWindow={"revisions": 3}))
    )
    said = tidegate("doctor", "delivery.yaml", "-o", "json")
    (found,) = said.json[0]["findings"]
    assert (said.code, found["code"], "rollbackWindow" in found["what"]) == (1, "unfit", True)
    told = tidegate("doctor", "delivery.yaml")
    assert (told.code, told.out.splitlines()[0], "      remediation:  " in told.out) == (1, f"{REGION}: 1 error", True)
    # That a region is away counts for more than any finding.
    servers.vanish(REGION)
    away = tidegate("doctor", "delivery.yaml")
    assert (away.code, away.out.startswith(f"{REGION}: https://127.0.0.1:")) == (4, True), away
