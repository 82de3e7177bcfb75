"""The interpreter of tests does what Argo Workflows does with what is rendered: who is run, and how often."""

from __future__ import annotations

import asyncio
import re

import pytest
from fakes.workflow.cases import blueprint, template
from fakes.workflow.interpreter import DELETED, ERROR, FAILED, LOST, Controller, Ended, Pod, tries_again

from pipelines.workflow.render import supporting_resources
from pipelines.workflow.template import disks, mutex


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
    assert (workflow.phase, workflow.tries("deliver.engine")) == ("Failed", 1)
    assert workflow.nodes["deliver.open"].phase == "Omitted"


async def test_workflows_of_one_model_wait_for_each_other() -> None:
    cluster = Cluster()
    controller = cluster.controller
    both = await asyncio.gather(*(controller.submit(template("one-region"), version=version) for version in "78"))
    assert ([workflow.phase for workflow in both], cluster.most) == (["Succeeded", "Succeeded"], 1)


EVERY, BUILD, CLOSE = ("open", "stage", "close", "engine"), ("engine",), ("close",)
PRESSURE = "The node was low on resource: ephemeral-storage."
SHUTDOWN = "Pod was terminated in response to imminent node shutdown."
DEADLINE = "Pod was active on the node longer than the specified deadline"


@pytest.mark.parametrize(
    ("phase", "code", "message", "again"),
    [
        (ERROR, LOST, DELETED, EVERY),
        (FAILED, LOST, "Pod was rejected: Node didn't have enough resource: cpu", EVERY),
        (FAILED, LOST, PRESSURE, EVERY),
        (FAILED, LOST, "Preempted in order to admit critical pod", EVERY),
        (FAILED, LOST, "can't find failed message for pod chat-7-x namespace serving", EVERY),
        (FAILED, LOST, "pod failed: neither main nor wait container completed successfully", EVERY),
        (FAILED, 0, "pod failed: wait container did not complete successfully", EVERY),
        (FAILED, 137, PRESSURE, EVERY),
        (FAILED, 143, SHUTDOWN, EVERY),
        (FAILED, 130, SHUTDOWN, CLOSE),
        (FAILED, 137, DEADLINE, EVERY),
        (FAILED, LOST, DEADLINE, ()),
        (FAILED, 137, "main: OOMKilled (exit code 137)", ()),
        (FAILED, 1, PRESSURE, ()),
        (FAILED, 3, "main: Error (exit code 3)", ()),
        (FAILED, LOST, "build: Error (exit code 2)", ("open", "stage", "close")),
        (ERROR, LOST, "Pod failed before main container starts due to PodInitializing: ", ("open", "stage", "close")),
    ],
)
def test_a_lost_pod_is_tried_again_in_all_its_shapes(
    phase: str, code: int, message: str, again: tuple[str, ...]
) -> None:
    rules = {
        each["name"]: each["retryStrategy"]["expression"]
        for each in template("gpu-build")["spec"]["templates"]
        if "container" in each
    }
    found = {name for name, rule in rules.items() if tries_again(rule, status=phase, code=code, message=message)}
    assert found == set(again)


def test_every_model_has_a_lock_of_its_own() -> None:
    models = "a-b-c", "a#b+c", "A-b-c", "a b c", "チャット", "чат", "x" * 80, "x" * 81
    assert len({mutex(model) for model in models}) == len(models)
    assert mutex("support-llm") == "tidegate-support-llm"


def test_every_file_has_a_key_of_its_own() -> None:
    files = dict.fromkeys(("delivery.yaml", "gates/a.jsonl", "gates_a.jsonl", "gates/ä b.jsonl", ".golden"), "")
    input_ = blueprint("one-region").model_copy(update={"files": files})
    (config,) = (each for each in supporting_resources(input_) if each["kind"] == "ConfigMap")
    items = next(each.volume.config_map.items for each in disks(input_) if each.volume.config_map)
    assert {each.path: each.key for each in items} == dict(zip(files, config["data"], strict=True))
    assert all(re.fullmatch(r"[-_a-zA-Z0-9][-._a-zA-Z0-9]*", key) for key in config["data"])
