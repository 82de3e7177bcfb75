"""The DAG is the plan: the same steps, each after all those, and only those, that it comes after."""

from __future__ import annotations

import asyncio

import pytest
from fakes.workflow.cases import CASES, blueprint, template
from fakes.workflow.interpreter import Controller, Ended, Pod

from pipelines.events.history import before
from pipelines.model import Plan
from registry.model import ModelVersion


class Watched:
    """Runs nothing, and notes which steps had ended when another began."""

    def __init__(self) -> None:
        self.ended_before: dict[str, set[str]] = {}
        self.order: list[str] = []
        self._ended: set[str] = set()

    async def run(self, pod: Pod) -> Ended:
        words = pod.argv[1:]
        if words[:2] == ("stage", "open"):
            return Ended(0, "delivery-1\n")
        if words[0] != "stage" or words[1] == "close":
            return Ended(0)
        assert words[2] == "--delivery=delivery-1"
        self.order.append(words[1])
        self.ended_before[words[1]] = set(self._ended)
        # Later regions are faster, so that an order that only happens to be right shows.
        await asyncio.sleep(0.001 * (3 - len(self._ended) % 3))
        self._ended.add(words[1])
        return Ended(0)


@pytest.mark.parametrize("case", CASES)
async def test_it_has_the_steps_of_the_plan_in_their_order(case: str) -> None:
    watched, drawn = Watched(), blueprint(case)
    workflow = await Controller(watched.run).submit(template(case), version="7")
    assert workflow.phase == "Succeeded"
    version = ModelVersion.model_construct(name="support-llm", version="7")
    regions = drawn.spec.regions.names
    plan = Plan.model_construct(
        name="support-llm", version=version, champion=version, regions=regions, steps=drawn.steps
    )
    assert sorted(watched.order) == sorted(step.id for step in plan.steps)
    for step in plan.steps:
        needed = {each.id for each in before(plan, step)}
        parallel = {each.id for each in plan.steps if each.region and each.wave == step.wave} if step.region else set()
        assert needed <= watched.ended_before[step.id] <= needed | parallel, step.id
