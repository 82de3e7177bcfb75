"""A fleet on a real cluster keeps the promises that the fake ones are held to: the same contract, test by test."""

from __future__ import annotations

import asyncio
import inspect
import json
from functools import partial

import pytest
from cluster.bed import Bed
from cluster.delivered_model import DeliveredModel
from cluster.telling import Tell

from rollouts.model import Engine
from tidegate.testing import FleetContract, write_tiny_model

PROMISES = sorted(name.removeprefix("test_") for name in vars(FleetContract) if name.startswith("test_"))
CORE = {
    "the_same_deploy_twice_changes_nothing",
    "traffic_moves_and_is_copied",
    "a_rollback_without_a_name_only_takes_the_trial_away",
    "a_newer_canary_takes_the_place_of_an_older_one",
    "an_engine_that_does_not_start_changes_nothing_for_users",
}
"""What every change is held to: all verbs, and what depends on how real pods start and real objects read back."""


@pytest.mark.parametrize(
    "story", [pytest.param(name, marks=[] if name in CORE else pytest.mark.long) for name in PROMISES]
)
def test_a_real_fleet_keeps_it(story: str, tell: Tell) -> None:
    tell(story)


def _keeps(bed: Bed, promise: str) -> None:
    """In a region of its own."""
    (region, *_) = bed.around.clusters
    model = DeliveredModel(bed, f"promise-{PROMISES.index(promise)}", [[region]])
    model.change(stages=[{"canary": {"weights": [5, 25, 50], "within": "15m", "gates": ["errors"]}}])
    serves, fails = _image(model, "serves"), _image(model, "fails", fail="torch.OutOfMemoryError: CUDA out of memory")

    def engine(version: str, image: str = serves) -> Engine:
        return Engine(version=version, digest=version.zfill(64), model=model.name, image=image)

    async def keep() -> None:
        await model.set_up(region, engine("1"))
        async with model.fleets() as fleets:
            method = getattr(FleetContract(), f"test_{promise}")
            brought = {"fleet": fleets[region], "engine": engine, "broken": lambda version: engine(version, fails)}
            await method(**{name: brought[name] for name in inspect.signature(method).parameters})

    asyncio.run(keep())


def _image(model: DeliveredModel, name: str, **ways: str) -> str:
    """Of an engine that behaves in these ways."""
    export = write_tiny_model(model.folder / name)
    (export / "standin.json").write_text(json.dumps(ways), encoding="utf-8")
    return model.bed.push_engine(model.name, name, export)


TOGETHER = {promise: partial(_keeps, promise=promise) for promise in PROMISES}
