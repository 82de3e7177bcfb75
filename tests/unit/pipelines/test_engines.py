"""A registered version becomes an engine: files proven and in place, and one command that serves them."""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.delivery.registry import FakeRegistry

from engine_images.adapters.vllm_runner import VllmRunner
from engine_images.build.builder import Builder
from engine_images.build.engine_store import EngineStore
from engine_images.build.proof import ScoredPrompt
from engine_images.errors import CannotBeServed, VersionMismatch
from engine_images.manifest import CompileKey
from engine_images.model import EngineEnvironment, LaunchCommand
from engine_images.ports import EngineServer
from engine_images.spec import EngineSettings, VllmSpec
from gates.answers.golden import GoldenPrompt
from gates.model import Scorer
from pipelines.adapters.local_engines import AskedGoldenSet, LocalEngines
from pipelines.state import StateFolder
from registry.errors import DigestMismatch
from registry.model import ModelVersion
from rollouts.model import PORT, Engine
from tidegate.testing import FakeChat, write_tiny_model

ENVIRONMENT = EngineEnvironment(python="/opt/engine/bin/python", vllm="0.32.0", recipe="0" * 64)


class Nobody:
    """Stands for engines and their answers where none may be started."""

    async def start(self, launch: LaunchCommand, log: Path) -> EngineServer:
        raise AssertionError("an engine that runs eagerly needs no start to be built")

    async def score(self, url: str, model: str, prompts: Sequence[str]) -> tuple[ScoredPrompt, ...]:
        raise AssertionError("and nothing to compare with")


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
            builder=Builder(EngineStore(self.state.builds), VllmRunner(Nobody(), Nobody(), key_of=lambda *_: key)),
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


async def test_it_is_started_by_its_own_entrypoint_at_the_port_that_the_fleet_picks(machine: Machine) -> None:
    engine = await machine.prepare(machine.first)
    assert engine.command[:4] == (ENVIRONMENT.python, "-m", "tidegate_entrypoint", "serve")
    assert engine.command[engine.command.index("--port") + 1] == PORT
    assert Path(engine.environment["PYTHONPATH"], "tidegate_entrypoint", "__main__.py").is_file()


async def test_each_process_of_an_engine_has_a_folder_of_its_own(machine: Machine) -> None:
    engine = await machine.prepare(machine.first)
    assert engine.command[engine.command.index("--run") + 1] == str(machine.state.run / PORT)


async def test_its_folders_are_where_they_are_wherever_it_starts(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(machine.state.root.parent)
    state = StateFolder(Path(machine.state.root.name))
    engine = await replace(machine.engines(), state=state).prepare(machine.first, machine.said.append)
    for option in ("--root", "--run", "--model-infos"):
        assert Path(engine.command[engine.command.index(option) + 1]).is_absolute()
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


async def test_what_vllm_is_told_names_no_folder_of_this_machine(machine: Machine) -> None:
    launch = manifest_of(await machine.prepare(machine.first))["launch"]
    assert "--max-model-len=512" in launch["arguments"]
    assert str(machine.state.root) not in json.dumps(launch)


async def test_two_versions_are_two_engines_that_start_alike(machine: Machine) -> None:
    first, second = [await machine.prepare(version) for version in (machine.first, machine.second)]
    assert first.workdir != second.workdir
    assert manifest_of(first)["launch"] == manifest_of(second)["launch"]


async def test_engines_share_what_vllm_has_found_out_about_model_classes(machine: Machine) -> None:
    commands = [(await machine.prepare(version)).command for version in (machine.first, machine.second)]
    folders = {command[command.index("--model-infos") + 1] for command in commands}
    assert folders == {str(machine.state.builds / "modelinfos")}


async def test_an_engine_takes_the_threads_it_was_given(machine: Machine) -> None:
    command = (await machine.prepare(machine.first, threads=3)).command
    assert command[command.index("--threads") + 1] == "3"


async def test_memory_is_known_before_anything_starts(machine: Machine) -> None:
    assert (await machine.prepare(machine.first)).memory_bytes > machine.first.size_bytes


async def test_preparing_twice_is_preparing_once(machine: Machine) -> None:
    assert await machine.prepare(machine.first) == await machine.prepare(machine.first)


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


async def test_engines_of_this_machine_share_its_gpus_and_are_built_as_any_other(machine: Machine) -> None:
    alone = replace(machine.engines(), settings=EngineSettings.model_validate(GPU | {"compile": {"mode": "none"}}))
    engine = await replace(alone, shares_gpus=True).prepare(machine.first, machine.said.append)
    told = engine.command[engine.command.index("--") + 1 :]
    assert [argument.partition("=")[0] for argument in told] == ["--gpu-memory-utilization", "--kv-cache-memory-bytes"]
    # Not in the manifest: the same engine, packed into an image, has its GPU for itself.
    shared = manifest_of(engine)
    assert not {"--gpu-memory-utilization", "--kv-cache-memory-bytes"} & set(shared["launch"]["arguments"])
    own = await alone.prepare(machine.first, machine.said.append)
    assert "--" not in own.command
    assert manifest_of(own)["engine"] == shared["engine"]


async def test_an_engine_on_a_gpu_keeps_its_weights_there(machine: Machine) -> None:
    settings = EngineSettings.model_validate(GPU | {"compile": {"mode": "none"}})
    engine = await replace(machine.engines(), settings=settings).prepare(machine.first, machine.said.append)
    # The machine's own memory holds two processes, whatever the KV cache.
    larger = settings.model_copy(update={"vllm": VllmSpec(version="0.32.0", args={"kv-cache-memory-bytes": "8G"})})
    other = await replace(machine.engines(), settings=larger).prepare(machine.second, machine.said.append)
    assert engine.memory_bytes == other.memory_bytes > 2**30


def golden_set_of(*lines: dict[str, Any], scorer: Scorer = Scorer.CONTAINS) -> AskedGoldenSet:
    chat = FakeChat({"http://engine": lambda prompt: "It is Paris." if "France" in prompt else "No idea"})
    return AskedGoldenSet(tuple(GoldenPrompt.model_validate(line) for line in lines), scorer, chat, None, Likelihoods())


class Likelihoods:
    """Holds every answer for as likely as not."""

    async def mean_logprob(self, url: str, model: str, prompt: str, reference: str) -> float:
        return math.log(0.5)


async def test_a_build_scores_a_golden_set_as_the_offline_stage_does() -> None:
    asked = golden_set_of(
        {"prompt": "Capital of France?", "expected": "Paris"},
        {"prompt": "Capital of Spain?", "expected": "Madrid"},
        {"prompt": "Capital of Italy?", "expected": "Rome", "scorer": "log_likelihood"},
    )

    scores = await asked.scores("http://engine", "support")

    assert scores == {"Capital of France?": 1, "Capital of Spain?": 0, "Capital of Italy?": 0.5}


def test_a_golden_set_is_another_where_answers_are_scored_otherwise() -> None:
    line = {"prompt": "Capital of France?", "expected": "Paris"}
    known = golden_set_of(line).digest
    assert known == golden_set_of(line).digest
    others = [
        golden_set_of({**line, "expected": "Lyon"}),
        golden_set_of({**line, "max_tokens": 5}),
        golden_set_of(line, line | {"prompt": "Capital of Spain?"}),
        golden_set_of(line, scorer=Scorer.EXACT),
    ]
    assert known not in {other.digest for other in others}
