"""What a request is started as: a process that outlives the one who started it, or a workflow of the cluster."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest
import yaml
from fakes.kube.server import FakeServers, one_region
from fakes.workflow.cases import GOLDEN

from pipelines.adapters.specs import read_delivery
from pipelines.requests import EVER, DeliveryRequest, QueuedRequest
from pipelines.triggers.starters import ProcessStarter, WorkflowStarter
from rollouts.errors import Forbidden
from rollouts.kube.client import KubeClient, connect
from rollouts.kube.resources import WORKFLOWS
from tidegate.core.clock import SystemClock
from tidegate.core.errors import OutsideError, UsageError

REQUEST = DeliveryRequest(model="support-llm", version="7", alias="challenger")
ENTRY = QueuedRequest(number=1, request=REQUEST, since=EVER, tries=1)
HUB = "hub"
EXAMPLE = Path("examples/kubernetes/serve.yaml")


def named(run: str | None) -> QueuedRequest:
    return ENTRY.model_copy(update={"run": run})


async def over(starter: ProcessStarter, entry: QueuedRequest) -> None:
    while await starter.runs(entry):
        await asyncio.sleep(0.05)


async def test_a_process_gets_the_version_and_its_words_are_kept(tmp_path: Path) -> None:
    starter = ProcessStarter([sys.executable, "-c", "import sys; print(*sys.argv[1:])"], {}, tmp_path)
    await over(starter, named(await starter.start(ENTRY)))
    assert (tmp_path / "1-1.log").read_text() == "--version 7\n"
    assert starter.last_words(ENTRY) == "--version 7"
    assert starter.last_words(ENTRY.model_copy(update={"tries": 2})) == ""


async def test_a_process_is_known_again_by_the_one_who_comes_after(tmp_path: Path) -> None:
    script = "import sys; sys.stdin.close(); import time; time.sleep(2)"
    first = ProcessStarter([sys.executable, "-c", script], {}, tmp_path)
    entry = named(await first.start(ENTRY))
    second = ProcessStarter([], {}, tmp_path)
    assert await second.runs(entry)
    await over(first, entry)
    assert not await second.runs(entry)
    assert not await second.runs(named("process 1 of 12.00"))
    assert not await second.runs(named(None))


async def test_a_process_that_ended_leaves_the_process_table_though_nobody_asks(tmp_path: Path) -> None:
    run = await ProcessStarter([sys.executable, "-c", "pass"], {}, tmp_path).start(ENTRY)
    while psutil.pid_exists(int(run.split()[1])):
        await asyncio.sleep(0.05)


async def test_a_command_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(OutsideError, match="cannot be started: No such file"):
        await ProcessStarter([str(tmp_path / "tidegate")], {}, tmp_path).start(ENTRY)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServers]:
    with one_region(HUB, tmp_path, monkeypatch, namespace="serving") as servers:
        yield servers


@pytest.fixture
async def client(hub: FakeServers) -> AsyncIterator[KubeClient]:
    made = connect(None, clock=SystemClock(), namespace="serving")
    yield made
    await made.close()


async def install(client: KubeClient) -> None:
    """The template and what it names."""
    # Here, since Hera takes a second to load, in every worker of a run.
    from pipelines.workflow.render import blueprint_of, rendered

    spec = GOLDEN / "one-region" / "delivery.yaml"
    for each in rendered(blueprint_of(read_delivery(spec), spec)):
        await client.apply(each)


async def test_a_workflow_is_submitted_and_runs_until_it_is_over(client: KubeClient) -> None:
    await install(client)
    starter = WorkflowStarter(client, "support-llm", "serving")
    run = await starter.start(ENTRY)
    name = run.removeprefix("workflow ")
    assert name.startswith("support-llm-7-")
    # Also when nobody had time to write its name down.
    assert await starter.runs(named(None))
    assert not await starter.runs(ENTRY.model_copy(update={"request": REQUEST.model_copy(update={"version": "8"})}))
    await client.patch(WORKFLOWS, name, {"status": {"phase": "Failed"}})
    assert not await starter.runs(named(run))


async def test_the_rights_of_the_example_are_enough(client: KubeClient, hub: FakeServers) -> None:
    await install(client)
    (role,) = (each for each in yaml.safe_load_all(EXAMPLE.read_text()) if each["kind"] == "Role")
    hub.do(lambda: hub.api(HUB).access.allow_only(*role["rules"]))
    starter = WorkflowStarter(client, "support-llm", "serving")
    run = await starter.start(ENTRY)
    assert await starter.runs(named(run))
    with pytest.raises(Forbidden):
        await client.delete(WORKFLOWS, run.removeprefix("workflow "))


async def test_a_cluster_without_the_template_is_told_what_brings_it(client: KubeClient) -> None:
    with pytest.raises(
        UsageError, match=r"no WorkflowTemplate support-llm .*`tidegate rollout render --as workflow \|"
    ):
        await WorkflowStarter(client, "support-llm", "serving").start(ENTRY)
