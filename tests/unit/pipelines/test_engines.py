"""Engines of this machine, and deliveries that change the engine alone."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.clusters.world import ClusterWorld, demo_on_clusters
from fakes.delivery.registry import FakeRegistry
from fakes.delivery.world import CHALLENGER, CHAMPION, a_spec, a_version

from engine_images.adapters.builder import Builder, EngineServer
from engine_images.build.engine_store import EngineStore
from engine_images.errors import CannotBeServed, VersionMismatch
from engine_images.manifest import CompileKey
from engine_images.model import EngineEnvironment, LaunchCommand
from engine_images.spec import EngineSettings, VllmSpec
from pipelines.adapters.local_engines import LocalEngines
from pipelines.events.state import plan_of
from pipelines.model import Ending, Plan
from pipelines.plan.engines import planned_engines, record_of, serving_engine
from pipelines.run.rollback_target import before
from pipelines.spec.delivery import Delivery
from pipelines.state import StateFolder
from registry.conventions import SERVING_TAG
from registry.errors import DigestMismatch
from registry.model import DeliverySummary, EngineRecord, ModelVersion, Serving, number_of
from rollouts.model import PORT, Engine
from tidegate.core.errors import UsageError
from tidegate.testing import START, write_tiny_model

ENVIRONMENT = EngineEnvironment(python="/opt/engine/bin/python", vllm="0.32.0", recipe="0" * 64)


def nobody(launch: LaunchCommand, log: Path) -> AbstractAsyncContextManager[EngineServer]:
    raise AssertionError("an engine that runs eagerly needs no start to be built")


class Machine:
    """A registry with two versions, and the state folder of the machine that serves them."""

    def __init__(self, folder: Path) -> None:
        self.registry = FakeRegistry()
        self.source = write_tiny_model(folder / "one")
        self.first = self.registry.register("support-llm", self.source)
        self.second = self.registry.register("support-llm", write_tiny_model(folder / "two", seed=2))
        self.state = StateFolder(folder / "state")
        self.said: list[str] = []

    def engines(self, *, vllm: str = "0.32.0", threads: int = 2) -> LocalEngines:
        spec = {"vllm": {"version": vllm, "args": {"max-model-len": 512}}, "compile": {"mode": "none"}}
        key = CompileKey(factors={"cpu": "x86_64"})
        return LocalEngines(
            registry=self.registry,
            settings=EngineSettings.model_validate(spec),
            environment=ENVIRONMENT,
            state=self.state,
            builder=Builder(EngineStore(self.state.builds), nobody, key_of=lambda *_: key),
            name="support",
            threads=threads,
        )

    async def prepare(self, version: ModelVersion, **settings: Any) -> Engine:
        return await self.engines(**settings).prepare(version, self.said.append)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def manifest_of(engine: Engine) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path(engine.workdir, "manifest.json").read_bytes())
    return content


async def test_an_engine_is_what_its_version_is(machine: Machine) -> None:
    engine = await machine.prepare(machine.first)
    assert (engine.version, engine.digest, engine.model) == ("1", machine.first.digest, "support")
    assert Path(engine.workdir, "model", "model.safetensors").samefile(
        machine.engines().folder(machine.first) / "model.safetensors"
    )
    assert manifest_of(engine)["model"]["digest"] == machine.first.digest


def option(engine: Engine, name: str) -> str:
    return engine.command[engine.command.index(name) + 1]


async def test_it_is_started_by_its_own_entrypoint_with_a_folder_and_threads_of_its_own(machine: Machine) -> None:
    first, second = [await machine.prepare(version, threads=3) for version in (machine.first, machine.second)]
    assert first.command[:4] == (ENVIRONMENT.python, "-m", "tidegate_entrypoint", "serve")
    assert (option(first, "--port"), option(first, "--threads")) == (PORT, "3")
    assert option(first, "--run") == str(machine.state.run / PORT)
    assert Path(first.environment["PYTHONPATH"], "tidegate_entrypoint", "__main__.py").is_file()
    assert first.memory_bytes > machine.first.size_bytes
    assert first == await machine.prepare(machine.first, threads=3), "preparing twice is preparing once"
    # Two versions are two engines that start alike, and share what vLLM has found out about model classes.
    assert first.workdir != second.workdir
    launch = manifest_of(first)["launch"]
    assert launch == manifest_of(second)["launch"]
    assert "--max-model-len=512" in launch["arguments"]
    assert str(machine.state.root) not in json.dumps(launch), "vLLM is told of no folder of this machine"
    assert option(first, "--model-infos") == option(second, "--model-infos") == str(machine.state.builds / "modelinfos")


async def test_its_folders_are_where_they_are_wherever_it_starts(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(machine.state.root.parent)
    state = StateFolder(Path(machine.state.root.name))
    engine = await replace(machine.engines(), state=state).prepare(machine.first, machine.said.append)
    for name in ("--root", "--run", "--model-infos"):
        assert Path(option(engine, name)).is_absolute()
    assert Path(engine.workdir).is_absolute()


async def test_the_folders_of_engines_that_have_ended_are_removed_and_no_others(machine: Machine) -> None:
    ended, runs, starts = (machine.state.run / port for port in ("1", "2", "3"))
    for folder in (ended, runs, starts):
        folder.mkdir(parents=True)
        (folder / "life").write_text("1 ready")
    for folder in (ended, runs):
        os.utime(folder / "life", (0, 0))
    with (runs / "life").open() as life:
        fcntl.flock(life, fcntl.LOCK_EX)
        await machine.prepare(machine.first)
    assert [folder.exists() for folder in (ended, runs, starts)] == [False, True, True]


async def test_files_that_are_not_the_registered_ones_become_no_engine(machine: Machine) -> None:
    machine.registry.change(machine.first, "chat_template.jinja", b"{{ 'something else' }}")
    with pytest.raises(DigestMismatch, match=r"chat_template\.jinja"):
        await machine.prepare(machine.first)
    assert not machine.engines().folder(machine.first).exists()


async def test_another_vllm_than_the_pinned_one_becomes_no_engine(machine: Machine) -> None:
    with pytest.raises(VersionMismatch, match=r"set engine\.vllm\.version to 0\.32\.0"):
        await machine.prepare(machine.first, vllm="0.31.0")


async def test_a_version_that_cannot_be_served_becomes_no_engine_with_every_reason(machine: Machine) -> None:
    folder = machine.source
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 4}))
    (folder / "chat_template.jinja").unlink()
    version = machine.registry.register("support-llm", folder)
    with pytest.raises(CannotBeServed) as refused:
        await machine.prepare(version)
    lines = str(refused.value).splitlines()
    assert any("max-model-len" in line for line in lines)
    assert any("chat template" in line for line in lines)
    assert all(line.startswith("models:/support-llm/3: ") for line in lines)


GPU = {"accelerator": "nvidia-h100-80gb", "vllm": {"version": "0.32.0", "args": {"max-model-len": 512}}}


async def test_an_engine_on_a_gpu_keeps_its_weights_there(machine: Machine) -> None:
    settings = EngineSettings.model_validate(GPU | {"compile": {"mode": "none"}})
    engine = await replace(machine.engines(), settings=settings).prepare(machine.first, machine.said.append)
    # The machine's own memory holds two processes, whatever the KV cache.
    larger = settings.model_copy(update={"vllm": VllmSpec(version="0.32.0", args={"kv-cache-memory-bytes": "8G"})})
    other = await replace(machine.engines(), settings=larger).prepare(machine.second, machine.said.append)
    assert engine.memory_bytes == other.memory_bytes > 2**30


SLOW = "engine: {vllm: {version: 0.32.0, args: {max-num-seqs: 1}}, compile: {mode: none}}"


def engines_of(now: Delivery, then: Delivery) -> tuple[EngineRecord, EngineRecord]:
    """Of the champion: the engine by `now`, and the one in production, which was delivered by `then`."""
    version = a_version(CHAMPION)
    serving = record_of(then, version, {})
    tags = {CHAMPION: Serving(now=serving).tag}
    wanted, kept = planned_engines(now, version, version, tags)
    assert kept == serving
    return wanted, serving


class TestNames:
    def test_an_engine_of_the_same_version_is_named_by_what_makes_it(self) -> None:
        wanted, serving = engines_of(a_spec(engine=SLOW), a_spec())
        assert serving.name == CHAMPION
        assert wanted.name == f"{CHAMPION}-{wanted.fingerprint[:8]}"
        assert number_of(wanted.name) == CHAMPION

    def test_the_same_engine_is_nothing_to_deliver(self) -> None:
        with pytest.raises(UsageError, match="there is nothing to deliver"):
            engines_of(a_spec(), a_spec())

    def test_what_a_build_accepts_makes_no_other_engine(self) -> None:
        strict = a_spec(engine="engine: {vllm: {version: 0.32.0}, compile: {mode: none, tolerance: 0.5}}")
        with pytest.raises(UsageError, match="there is nothing to deliver"):
            engines_of(strict, a_spec())

    def test_an_engine_that_nobody_recorded_cannot_be_compared(self) -> None:
        version = a_version(CHAMPION)
        with pytest.raises(UsageError, match="nobody has recorded which engine serves it"):
            planned_engines(a_spec(), version, version, {CHAMPION: {}})

    def test_another_model_version_keeps_its_number_for_a_name(self) -> None:
        tags = {CHAMPION: {}, CHALLENGER: {}}
        wanted, serving = planned_engines(a_spec(), a_version(CHALLENGER), a_version(CHAMPION), tags)
        assert (wanted.name, serving) == (CHALLENGER, None)

    def test_a_record_that_anybody_has_spoilt_is_none(self) -> None:
        assert Serving.of({SERVING_TAG: "[]"}) == Serving.of({SERVING_TAG: "no JSON"}) == Serving()


def changed(plan: Plan, now: Delivery, then: Delivery) -> Plan:
    wanted, serving = engines_of(now, then)
    return plan.model_copy(update={"version": plan.champion, "engine": wanted, "champion_engine": serving})


class OnClusters(ClusterWorld):
    """The demo's champion, whose engine alone changes."""

    @property
    def plan(self) -> Plan:
        plan = super().plan
        slow = self.spec.engine.model_copy(
            update={"vllm": self.spec.engine.vllm.model_copy(update={"args": {"max-num-seqs": 1}})}
        )
        return changed(plan, self.spec.model_copy(update={"engine": slow}), self.spec)

    def canary_is(self, *, ttft: float = 0.1) -> str:
        """Everybody's numbers, the canary's as slow as that; returns its name."""
        name = self.plan.on_trial
        self.evidence.serves("stable", name)
        for role in ("shadow", "canary"):
            self.evidence.serves(role, name, ttft=ttft)
        return name


@pytest.fixture
def clusters(tmp_path: Path) -> OnClusters:
    return OnClusters(tmp_path, demo_on_clusters(("eu-west-1",)))


async def test_an_engine_that_is_as_good_is_delivered_and_both_are_recorded(clusters: OnClusters) -> None:
    name = clusters.canary_is()
    result = await clusters.deliver()
    assert result.ending is Ending.DELIVERED, result.reason
    assert set(clusters.stable_versions().values()) == {name}
    for region in clusters.regions.values():
        state = await region.fleet.observe()
        assert state.previous
        assert state.previous.version == CHAMPION
    assert clusters.registry.champion == CHAMPION
    serving = Serving.of(clusters.registry.marks)
    kept = [serving.now, serving.before]
    assert [each.name for each in kept if each] == [name, CHAMPION]
    first = clusters.recorder.events[0]
    assert first.message.startswith(f"engine {name} of models:/support-llm/1 to ")
    assert first.message.endswith("; champion is version 1")
    # As a later process reads it.
    read = plan_of(clusters.recorder.events)
    assert (read.on_trial, read.in_production) == (name, CHAMPION)


def test_a_rollback_knows_both_names_of_an_unfinished_delivery() -> None:
    from rollouts.model import EngineSet, RegionPhase, RegionState, Role

    last = DeliverySummary(
        id="1", name="m", version="7", champion="7", on_trial="7-aa", in_production="7", started=START, host="h",
        pid=1, heartbeat=START,
    )  # fmt: skip
    stable = EngineSet(role=Role.STABLE, version="7-aa", digest="", url="", ready=True)
    state = RegionState(region="eu", phase=RegionPhase.STEADY, entry="", stable=stable)
    assert before({"eu": state}, last) == {"eu": "7"}


def test_a_fleet_serves_the_recorded_engine_whatever_the_spec_says_by_now(tmp_path: Path) -> None:
    registry = FakeRegistry()
    version = registry.register("support-llm", write_tiny_model(tmp_path / "model"))
    first = serving_engine(a_spec(), version, registry, print)
    assert serving_engine(a_spec(engine=SLOW), version, registry, print) == first
