"""The simulated controller keeps the same contract with a real API server, with real pods, Services and endpoints."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from cluster.endpoints import Endpoints, service
from fakes.argo.stage import ControllerContract, ControllerProcess, SeparateController, Stage

from rollouts.errors import NotFound
from rollouts.kube.client import KubeClient, connect
from rollouts.kube.model import EVERYWHERE
from rollouts.kube.resources import DEPLOYMENTS, HTTP_ROUTES, NODES, ROLLOUTS
from tidegate.core.clock import SystemClock

pytestmark = pytest.mark.long

PATIENCE_SECONDS = 60.0


@pytest.fixture(scope="module")
def process(
    context: str | None, namespace: str, rollouts_kinds: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControllerProcess]:
    """One for all tests, which may kill it."""
    process = ControllerProcess(namespace, tmp_path_factory.mktemp("controller") / "log", context=context)
    yield process
    assert asyncio.run(process.end()) in (0, None), process.log


@pytest.fixture
async def controller(client: KubeClient, process: ControllerProcess) -> SeparateController:
    """It lives, and nothing is wrong."""
    try:
        await client.list(HTTP_ROUTES)
    except NotFound:
        pytest.skip("no Gateway API in this cluster")
    real = await client.list(DEPLOYMENTS, labels="app.kubernetes.io/name=argo-rollouts", namespace=EVERYWHERE)
    if real.items:
        pytest.skip("a real controller reconciles Rollouts in this cluster")
    controller = SeparateController(process, client)
    await controller.reset()
    if not process.lives:
        await controller.start()
    return controller


@pytest.fixture
async def stage(
    client: KubeClient, controller: SeparateController, context: str | None, marked: str
) -> AsyncIterator[Stage]:
    """Throughout, the stable's Service has a ready endpoint."""
    image = await _pause_image(client)
    stage = Stage(client, SystemClock(), controller, name=marked, image=image, patience_seconds=PATIENCE_SECONDS)
    await stage.furnish()
    reached = Endpoints(
        lambda: connect(context, clock=SystemClock(), namespace=client.namespace), service(f"{stage.name}-stable")
    )
    yield stage
    await asyncio.to_thread(reached.end)
    assert reached.fewest, f"the fewest endpoints of {stage.name}-stable: {reached.fewest}"
    await client.delete(ROLLOUTS, stage.name)


class TestWithARealApiServer(ControllerContract): ...


async def _pause_image(client: KubeClient) -> str:
    """What every node has for the sandboxes of its pods: it need not be pulled."""
    for node in (await client.list(NODES)).items:
        names = [name for image in node["status"].get("images", ()) for name in image.get("names", ())]
        found = [name for name in names if "/pause" in name and "@" not in name]
        if found:
            return str(found[0])
    return "registry.k8s.io/pause:3.10"
