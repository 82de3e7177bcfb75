"""The interpreter of tests does what Argo Workflows does with what is rendered: who is run, and how often."""

from __future__ import annotations

import asyncio

import pytest
from fakes.workflow.cases import template
from fakes.workflow.interpreter import LOST, Controller, Ended, Pod


class Cluster:
    """Answers by a word of the command; every command succeeds unless a list of codes is left for it."""

    def __init__(self, **codes: list[int]) -> None:
        self.codes = codes
        self.pauses: list[float] = []
        self.most = self.now = 0

    async def run(self, pod: Pod) -> Ended:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        word = pod.argv[2] if pod.argv[1] == "stage" else pod.argv[1]
        codes = self.codes.get(word.partition("@")[0])
        return Ended(codes.pop(0) if codes else 0, "d1\n")

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    @property
    def controller(self) -> Controller:
        return Controller(self.run, sleep=self.sleep)


async def test_regions_of_a_wave_go_side_by_side() -> None:
    cluster = Cluster()
    await cluster.controller.submit(template("three-waves"), version="7")
    assert cluster.most == 3


@pytest.mark.parametrize("code", [4, 137, 143, LOST])
async def test_what_is_transient_is_tried_again_after_growing_pauses(code: int) -> None:
    cluster = Cluster(build=[code, code])
    workflow = await cluster.controller.submit(template("one-region"), version="7")
    assert (workflow.phase, workflow.tries("deliver.build"), cluster.pauses) == ("Succeeded", 3, [30.0, 60.0])


@pytest.mark.parametrize("code", [1, 2, 3])
async def test_a_verdict_is_not_asked_for_twice_and_the_end_is_always_reached(code: int) -> None:
    cluster = Cluster(canary=[code], close=[code])
    workflow = await cluster.controller.submit(template("one-region"), version="7")
    assert (workflow.phase, workflow.closed.code) == ("Failed", code)
    assert workflow.tries("deliver.wave-1(0:eu-west-1).canary-5") == 1
    assert workflow.nodes["deliver.wave-1(0:eu-west-1).canary-25"].phase == "Omitted"
    assert workflow.nodes["deliver.finalize"].phase == "Omitted"
    assert workflow.tries("onExit") == 1


async def test_after_so_many_tries_it_fails() -> None:
    workflow = await Cluster(open=[4] * 9).controller.submit(template("one-region"), version="7")
    assert (workflow.phase, workflow.tries("deliver.open")) == ("Failed", 4)


async def test_an_engine_is_built_once_for_a_version() -> None:
    controller = Cluster().controller
    first = await controller.submit(template("gpu-build"), version="7")
    again = await controller.submit(template("gpu-build"), version="7")
    other = await controller.submit(template("gpu-build"), version="8")
    assert [workflow.tries("deliver.engine") for workflow in (first, again, other)] == [2, 0, 2]


async def test_a_build_that_fails_is_not_tried_on_the_same_gpu_again_and_opens_nothing() -> None:
    workflow = await Cluster(engine=[2]).controller.submit(template("gpu-build"), version="7")
    assert (workflow.phase, workflow.tries("deliver.engine")) == ("Error", 1)
    assert workflow.nodes["deliver.open"].phase == "Omitted"


async def test_workflows_of_one_model_wait_for_each_other() -> None:
    cluster = Cluster()
    controller = cluster.controller
    both = await asyncio.gather(*(controller.submit(template("one-region"), version=version) for version in "78"))
    assert ([workflow.phase for workflow in both], cluster.most) == (["Succeeded", "Succeeded"], 1)
