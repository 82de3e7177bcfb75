"""Deliveries through the canary stage that gates on queries decide, and the stages and fleets that have none."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.delivery.store import MemoryStore
from fakes.delivery.world import GOLDEN, World, a_spec
from fakes.metrics.asked import FakeQueries

from gates.analyses.queries import Window
from gates.evidence.batch import Buckets
from gates.model import ArmKey, NoData
from pipelines.model import Ending, Result
from pipelines.run.engine import deliver
from pipelines.spec.delivery import Delivery
from registry.versions import MlflowRegistry
from tidegate import load_spec
from tidegate.connect import refuse_unlike
from tidegate.core.errors import UsageError
from tidegate.core.spec import SpecError, parse_spec
from tidegate.planning import require_assessments
from tidegate.testing import FakeFleet

ARM = 'version="{{.version}}"'
GATES: dict[str, dict[str, Any]] = {
    "ratio": {"trials": f"calls_total{{{ARM}}}", "events": f"failed_total{{{ARM}}}", "max_increase": "5pp"},
    "quantile": {"buckets": f"queue_seconds_bucket{{{ARM}}}", "max_increase": "60%"},
    "mean": {"sum": f"cost_sum{{{ARM}}}", "count": f"cost_count{{{ARM}}}", "max_change": "60%"},
    "query": {"query": f"pool{{{ARM}}}", "max": 0.5, "held_for": "20s", "broken_for": "20s"},
}
NAMES = {kind: f"my-{kind}" for kind in GATES}
SAID = {
    "ratio": "canary has ",
    "quantile": "canary p95 is ",
    "mean": "canary's mean is ",
    "query": "the query gives 1.6, which may be at most 0.5",
}


class Team(FakeQueries):
    """What a team's Prometheus says: 40 events a second, on the canary so many times as bad."""

    def __init__(self, worse: float) -> None:
        self._worse = {"1": 1.0, "2": worse}

    def counted(self, selector: str, arm: ArmKey, window: Window) -> dict[str, int]:
        count = round(window.seconds * 40)
        return {"": round(0.05 * count * self._worse[arm.version]) if selector.startswith("failed") else count}

    def summed(self, selector: str, arm: ArmKey, window: Window) -> dict[str, float]:
        return {"": 40 * window.seconds * 0.3 * self._worse[arm.version]}

    def distributed(self, selector: str, arm: ArmKey, window: Window) -> dict[str, Buckets]:
        edges = tuple(0.1 * 1.3**step for step in range(20))
        # Evenly over the logarithm from 0.1 to 1 s.
        count = round(window.seconds * 40)
        times = [0.1 * 10 ** ((at + 0.5) / count) * self._worse[arm.version] for at in range(count)]
        below = [sum(time <= edge for time in times) for edge in edges]
        return {
            "": Buckets(
                edges=edges, counts=(*(b - a for a, b in zip([0, *below], below, strict=False)), count - below[-1])
            )
        }

    def value(self, query: str, arm: ArmKey, window: Window) -> float | NoData:
        assert f'"{arm.version}"' not in query, "the adapter fills in what is open"
        return 0.2 * self._worse[arm.version]


def a_delivery(kind: str, stage: str = "canary", **settings: object) -> Delivery:
    given = a_spec().model_dump(mode="json", by_alias=True, exclude_unset=True)
    asked_of = {"kind": kind, **GATES[kind], **settings}
    given["gates"][NAMES[kind]] = {name: value for name, value in asked_of.items() if value is not None}
    asked = next(each[stage] for each in given["stages"] if stage in each)
    asked["gates"] = ["errors", NAMES[kind]]
    return parse_spec(json.dumps(given), Delivery, file="delivery.yaml")


async def delivered(folder: Path, kind: str, worse: float) -> Result:
    folder.mkdir()
    world = World(folder, a_delivery(kind))
    return await deliver(replace(world.context(), queries=Team(worse)))


@pytest.mark.parametrize("kind", GATES)
async def test_a_delivery_is_decided_by_what_a_team_counts(tmp_path: Path, kind: str) -> None:
    fine = await delivered(tmp_path / "fine", kind, 1.0)
    assert fine.ending is Ending.DELIVERED, fine.reason
    bad = await delivered(tmp_path / "bad", kind, 8.0)
    assert bad.ending is Ending.ROLLED_BACK
    assert f"gate {NAMES[kind]}: {SAID[kind]}" in bad.reason


SCORED = {
    "worse": "lower",
    "assessments": {"name": "helpful", "experiment": "chat", "tags": {"served_by": "{{.version}}"}},
    "sum": None,
    "count": None,
}


@pytest.mark.parametrize(("of_canary", "ending"), {"yes": Ending.DELIVERED, "no": Ending.ROLLED_BACK}.items())
async def test_a_delivery_is_decided_by_what_mlflow_s_scorers_say(
    tmp_path: Path, of_canary: str, ending: Ending
) -> None:
    world, store = World(tmp_path, a_delivery("mean", **SCORED)), MemoryStore()
    begin = round(world.clock.now().timestamp() * 1000)
    for second in range(2000):
        at = begin + 1000 * second
        for version, said in ("1", "yes"), ("2", of_canary):
            store.traces.append(("chat", {"served_by": version}, at, "helpful", at + 500, said))
    world.registry.assessed = MlflowRegistry(store).assessed  # type: ignore[attr-defined]
    result = await world.deliver()
    assert result.ending is ending, result.reason
    assert of_canary == "yes" or "gate my-mean: " in result.reason


def test_a_delivery_does_not_begin_where_nobody_assesses_what_serves(tmp_path: Path) -> None:
    world, store = World(tmp_path, a_delivery("mean", **SCORED)), MemoryStore()
    registry, begin = MlflowRegistry(store), round(time.time() * 1000)
    path = tmp_path / "delivery.yaml"
    path.write_text(world.spec.model_dump_json(by_alias=True, exclude_unset=True))
    spec = load_spec(path)

    def told() -> str:
        with pytest.raises(UsageError, match=r"gates\.my-mean\.assessments: ") as raised:
            require_assessments(spec, world.plan, registry)
        return str(raised.value)

    assert "MLflow has no experiment chat; looked at the last 15m" in told()
    store.traces.append(("chat", {"served_by": "1"}, begin, "helpful", begin, "unknown"))
    assert "no assessment helpful that is yes, no, or a number of 0 or more of traces with served_by=1" in told()
    store.traces.append(("chat", {"served_by": "1"}, begin, "helpful", begin, 0.5))
    require_assessments(spec, world.plan, registry)


@pytest.mark.parametrize(
    ("kind", "nothing"),
    {"ratio": "trials of the canary", "quantile": "observations of the canary", "mean": "observations of the canary",
     "query": "number"}.items(),
)  # fmt: skip
async def test_nothing_of_what_is_asked_never_promotes(tmp_path: Path, kind: str, nothing: str) -> None:
    world = World(tmp_path, a_delivery(kind))
    result = await deliver(replace(world.context(), queries=FakeQueries()))
    assert result.ending is Ending.INCONCLUSIVE
    assert f"gate {NAMES[kind]}: no {nothing}: Prometheus has no" in result.reason


@pytest.mark.parametrize("kind", ["ratio", "quantile", "mean"])
def test_copies_are_not_told_apart_so_shadow_refuses_what_compares_both_arms(kind: str) -> None:
    with pytest.raises(SpecError, match=f"shadow.gates.*found 'my-{kind}' of kind {kind}; expected a gate of kind"):
        a_delivery(kind, "shadow")


def test_shadow_may_ask_a_guard() -> None:
    assert a_delivery("query", "shadow").shadow is not None


@pytest.mark.parametrize("kind", GATES)
def test_a_fleet_of_ones_own_has_no_prometheus_to_ask(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "delivery.yaml"
    path.with_name("golden.jsonl").write_text(GOLDEN)
    path.write_text(a_delivery(kind).model_dump_json(by_alias=True, exclude_unset=True))
    spec = load_spec(path)
    with pytest.raises(UsageError, match=f"gates.my-{kind}: found a gate of kind {kind}; expected none with a fleet"):
        refuse_unlike(spec, {region: FakeFleet() for region in spec.regions.names})
