"""A fleet on a real cluster keeps the promises that the fake ones are held to: the same contract, test by test."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from cluster.bed import Bed
from cluster.delivered_model import DeliveredModel

from rollouts.model import Engine
from tidegate.testing import FleetContract, write_tiny_model

PROMISES = sorted(name for name in vars(FleetContract) if name.startswith("test_"))
SIDE_BY_SIDE = 5
"""Regions at once: most of a promise's time is waiting for probes."""
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def images(regions: Bed) -> dict[str, str]:
    """Of an engine that serves, and of one that ends while it starts."""
    made = {}
    for name, ways in (("serves", {}), ("fails", {"fail": "torch.OutOfMemoryError: CUDA out of memory"})):
        model = write_tiny_model(regions.folder / f"contract-{name}")
        (model / "standin.json").write_text(json.dumps(ways), encoding="utf-8")
        made[name] = regions.push_engine("contract", name, model)
    return made


@pytest.fixture(scope="module")
def kept(request: pytest.FixtureRequest, regions: Bed, images: dict[str, str]) -> Iterator[dict[str, Future[None]]]:
    """What becomes of each promise that was asked for; all of them begin at once, each with a region of its own."""
    names = [item.callspec.params["promise"] for item in request.session.items if _is_promise(item)]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        yield {name: pool.submit(_keeps, regions, images, name) for name in names}


@pytest.mark.parametrize("promise", PROMISES)
def test_a_real_fleet_keeps_it(promise: str, kept: dict[str, Future[None]]) -> None:
    kept[promise].result()


def _keeps(regions: Bed, images: dict[str, str], promise: str) -> None:
    (region, *_) = regions.around.clusters
    model = DeliveredModel(regions, f"promise-{PROMISES.index(promise)}", [[region]])
    model.change(stages=[{"canary": {"weights": [5, 25, 50], "within": "5m", "gates": ["errors"]}}])

    def engine(version: str, image: str = images["serves"]) -> Engine:
        return Engine(version=version, digest=version.zfill(64), model=model.name, image=image)

    async def keep() -> None:
        await model.set_up(region, engine("1"))
        async with model.fleets() as fleets:
            method = getattr(FleetContract(), promise)
            brought = {
                "fleet": fleets[region],
                "engine": engine,
                "broken": lambda version: engine(version, images["fails"]),
            }
            await method(**{name: brought[name] for name in inspect.signature(method).parameters})

    asyncio.run(keep())


def _is_promise(item: pytest.Item) -> bool:
    return hasattr(item, "callspec") and "promise" in item.callspec.params
