"""Waves follow each other, regions of a wave go side by side, steps of a region one after the other."""

from __future__ import annotations

from fakes.delivery.world import CHALLENGER, CHAMPION, a_spec, a_version

from pipelines.plan.planner import make_plan
from pipelines.run.engine import waves_of


def lanes_of(waves: str) -> list[list[list[str]]]:
    spec = a_spec(regions=f"regions: {{waves: {waves}, bake: 10s}}", shadow="", offline="")
    plan = make_plan(spec, a_version(CHALLENGER), a_version(CHAMPION), prompts=0)
    return [[[step.id for step in lane] for lane in lanes] for lanes in waves_of(plan.steps)]


def region(name: str) -> list[str]:
    return [f"deploy@{name}", f"smoke@{name}", f"canary@{name}/10", f"canary@{name}/50", f"promote@{name}"]


def test_one_region_after_the_other() -> None:
    assert lanes_of("[[eu], [us]]") == [
        [["build"]],
        [region("eu")],
        [["bake@1"]],
        [region("us")],
        [["bake@2"]],
        [["finalize"]],
    ]


def test_two_regions_side_by_side_bake_together() -> None:
    assert lanes_of("[[eu, us], [ap]]") == [
        [["build"]],
        [region("eu"), region("us")],
        [["bake@1"]],
        [region("ap")],
        [["bake@2"]],
        [["finalize"]],
    ]


def test_what_is_done_once_never_goes_side_by_side() -> None:
    assert all(len(lanes) == 1 for lanes in lanes_of("[[eu, us]]") if "@" not in lanes[0][0])
