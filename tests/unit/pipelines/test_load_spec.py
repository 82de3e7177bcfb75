"""What a spec may say of a load stage: each refusal names the field, what was found, and what would do."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from fakes.clusters.world import demo_on_clusters
from fakes.delivery.world import SPEC

from pipelines.load import LoadShape
from pipelines.spec.delivery import Delivery, LoadStage
from pipelines.spec.policy import missing_files
from tidegate.core.spec import SpecError, parse_spec


def problems(load: object, *, more: str = "", gates: str = "throughput: {}", text: str = SPEC) -> list[str]:
    spec = yaml.safe_load(text + more)
    spec["gates"] |= yaml.safe_load(f"{{{gates}}}")
    spec["stages"].insert(1, {"load": load})
    try:
        parse_spec(yaml.safe_dump(spec, sort_keys=False), Delivery, file="delivery.yaml")
    except SpecError as error:
        return [str(problem) for problem in error.problems]
    return []


def test_nothing_need_be_said() -> None:
    assert problems({}) == []
    stage = LoadStage()
    assert (stage.arms, stage.load_of(1), stage.load_of(3)) == ("scratch", (8, None), (24, None))
    assert LoadStage(requests_per_second=5.0).load_of(2) == (None, 10.0)


def test_no_load_is_too_much_and_more_of_it_gets_more_processes() -> None:
    stage = LoadStage(requests_per_second=5000.0, shape=LoadShape.SPIKE)
    assert stage.processes_of(1) == 150
    assert LoadStage(requests_per_second=5000.0, processes=4).processes_of(1) == 4
    assert LoadStage(concurrency=1000).processes_of(2) == 32
    assert LoadStage().processes_of(1) == 1


@pytest.mark.parametrize(
    ("load", "told"),
    [
        (
            {"concurrency": 4, "requests_per_second": 4},
            "stages[1].load.requests_per_second: found a rate next to a concurrency; expected one of",
        ),
        ({"block": "2m", "within": "3m"}, "stages[1].load.block: found 2m; expected a block on both arms within"),
        ({"at_once": True}, "stages[1].load.at_once: found both arms at once on one machine"),
        (
            {"gates": ["cost"]},
            "stages[1].load.gates[0]: found 'cost' without settings; expected settings at gates.cost",
        ),
        ({"gates": ["latency"]}, "found 'latency' of kind latency; expected a gate of kind throughput, cost"),
        ({"block": "1s"}, "stages[1].load.block: found "),
    ],
)
def test_what_does_not_fit_is_refused_with_its_field(load: object, told: str) -> None:
    assert any(told in problem for problem in problems(load)), problems(load)


def test_a_gate_on_cost_needs_a_price() -> None:
    told = "stages[1].load.gates[0]: found a gate on cost without a price; expected `cost: {per_engine_hour: ...}`"
    assert any(told in problem for problem in problems({"gates": ["cost"]}, gates="cost: {}"))
    priced = "\ncost: {per_engine_hour: 2.5}\n"
    assert problems({"gates": ["cost"]}, gates="cost: {}", more=priced) == []


def test_what_is_tolerated_must_be_allowed() -> None:
    (told,) = problems({}, gates="throughput: {max_drop: 5%, tolerance: 5%}")
    assert "gates.throughput.tolerance: found 5%; expected less than max_drop, 5%" in told


def test_clusters_must_say_that_users_may_feel_it() -> None:
    text = yaml.safe_dump(demo_on_clusters().model_dump(mode="json", by_alias=True, exclude_unset=True))
    (told,) = problems({}, text=text)
    assert "stages[1].load.arms: found a scratch engine, which this fleet does not start" in told
    assert "`arms: serving`, which puts the load on the stable that serves users" in told
    assert problems({"arms": "serving", "at_once": True}, text=text) == []


def test_files_that_it_names_must_be_there(tmp_path: Path) -> None:
    spec = yaml.safe_load(SPEC)
    spec["gates"]["throughput"] = {}
    spec["stages"].insert(1, {"load": {"prompts": "p.txt", "lengths": "metrics.txt"}})
    read = parse_spec(yaml.safe_dump(spec), Delivery, file="delivery.yaml")
    places = [".".join(map(str, odd.where)) for odd in missing_files(read, tmp_path)]
    assert places == ["stages.0.offline.dataset", "stages.1.load.prompts", "stages.1.load.lengths"]
