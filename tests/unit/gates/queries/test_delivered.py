"""Deliveries through the canary stage that gates on queries decide, and the stages and fleets that have none."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.delivery.store import MemoryStore
from fakes.delivery.world import GOLDEN, World, a_spec
from fakes.metrics.asked import FakeQueries

from gates.analyses.queries import Window
from gates.model import ArmKey
from pipelines.model import Ending, Result
from pipelines.run.engine import deliver
from pipelines.spec.delivery import Delivery
from registry.versions import MlflowRegistry
from tidegate import load_spec
from tidegate.connect import refuse_unlike
from tidegate.core.errors import UsageError
from tidegate.core.spec import parse_spec
from tidegate.planning import require_assessments
from tidegate.testing import FakeFleet

ARM = 'version="{{.version}}"'
RATIO: dict[str, Any] = {
    "kind": "ratio",
    "trials": f"calls_total{{{ARM}}}",
    "events": f"failed_total{{{ARM}}}",
    "max_increase": "5pp",
}


class Team(FakeQueries):
    """What a team's Prometheus says: 40 events a second, on the canary so many times as bad."""

    def __init__(self, worse: float) -> None:
        self._worse = {"1": 1.0, "2": worse}

    def counted(self, selector: str, arm: ArmKey, window: Window) -> dict[str, int]:
        count = round(window.seconds * 40)
        return {"": round(0.05 * count * self._worse[arm.version]) if selector.startswith("failed") else count}


def a_delivery(settings: Mapping[str, object] = RATIO) -> Delivery:
    given = a_spec().model_dump(mode="json", by_alias=True, exclude_unset=True)
    given["gates"]["mine"] = dict(settings)
    asked = next(each["canary"] for each in given["stages"] if "canary" in each)
    asked["gates"] = ["errors", "mine"]
    return parse_spec(json.dumps(given), Delivery, file="delivery.yaml")


async def delivered(folder: Path, worse: float) -> Result:
    folder.mkdir()
    world = World(folder, a_delivery())
    return await deliver(replace(world.context(), queries=Team(worse)))


async def test_a_delivery_is_decided_by_what_a_team_counts(tmp_path: Path) -> None:
    fine = await delivered(tmp_path / "fine", 1.0)
    assert fine.ending is Ending.DELIVERED, fine.reason
    bad = await delivered(tmp_path / "bad", 8.0)
    assert bad.ending is Ending.ROLLED_BACK
    assert "gate mine: canary has " in bad.reason


SCORED = {
    "kind": "mean",
    "worse": "lower",
    "max_change": "60%",
    "assessments": {"name": "helpful", "experiment": "chat", "tags": {"served_by": "{{.version}}"}},
}


@pytest.mark.parametrize(("of_canary", "ending"), {"yes": Ending.DELIVERED, "no": Ending.ROLLED_BACK}.items())
async def test_a_delivery_is_decided_by_what_mlflow_s_scorers_say(
    tmp_path: Path, of_canary: str, ending: Ending
) -> None:
    world, store = World(tmp_path, a_delivery(SCORED)), MemoryStore()
    begin = round(world.clock.now().timestamp() * 1000)
    for second in range(2000):
        at = begin + 1000 * second
        for version, said in ("1", "yes"), ("2", of_canary):
            store.traces.append(("chat", {"served_by": version}, at, "helpful", at + 500, said))
    world.registry.assessed = MlflowRegistry(store).assessed  # type: ignore[attr-defined]
    result = await world.deliver()
    assert result.ending is ending, result.reason
    assert of_canary == "yes" or "gate mine: " in result.reason


def test_a_delivery_does_not_begin_where_nobody_assesses_what_serves(tmp_path: Path) -> None:
    world, store = World(tmp_path, a_delivery(SCORED)), MemoryStore()
    registry, begin = MlflowRegistry(store), round(time.time() * 1000)
    path = tmp_path / "delivery.yaml"
    path.write_text(world.spec.model_dump_json(by_alias=True, exclude_unset=True))
    spec = load_spec(path)

    def told() -> str:
        with pytest.raises(UsageError, match=r"gates\.mine\.assessments: ") as raised:
            require_assessments(spec, world.plan, registry)
        return str(raised.value)

    assert "MLflow has no experiment chat; looked at the last 15m" in told()
    store.traces.append(("chat", {"served_by": "1"}, begin, "helpful", begin, "unknown"))
    assert "no assessment helpful that is yes, no, or a number of 0 or more of traces with served_by=1" in told()
    store.traces.append(("chat", {"served_by": "1"}, begin, "helpful", begin, 0.5))
    require_assessments(spec, world.plan, registry)


async def test_nothing_of_what_is_asked_never_promotes(tmp_path: Path) -> None:
    world = World(tmp_path, a_delivery())
    result = await deliver(replace(world.context(), queries=FakeQueries()))
    assert result.ending is Ending.INCONCLUSIVE
    assert "gate mine: no trials of the canary: Prometheus has no" in result.reason


def test_a_fleet_of_ones_own_has_no_prometheus_to_ask(tmp_path: Path) -> None:
    path = tmp_path / "delivery.yaml"
    path.with_name("golden.jsonl").write_text(GOLDEN)
    path.write_text(a_delivery().model_dump_json(by_alias=True, exclude_unset=True))
    spec = load_spec(path)
    with pytest.raises(UsageError, match="found a gate of kind ratio; expected none with a fleet"):
        refuse_unlike(spec, {region: FakeFleet() for region in spec.regions.names})
