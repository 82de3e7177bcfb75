"""A registered version becomes an engine: files proven and in place, and one command that serves them."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.registry import FakeRegistry
from fakes.tiny_model import write_tiny_model

from engine_images.errors import VersionMismatch
from engine_images.model import EngineEnvironment
from engine_images.spec import EngineSettings
from pipelines.engines import LocalEngines
from pipelines.state import StateFolder
from registry.errors import DigestMismatch
from rollouts.model import PORT

ENVIRONMENT = EngineEnvironment(python="/opt/engine/bin/python", vllm="0.32.0")


class Machine:
    """A registry with two versions, and the state folder of the machine that serves them."""

    def __init__(self, folder: Path) -> None:
        self.registry = FakeRegistry()
        self.first = self.registry.register("support-llm", write_tiny_model(folder / "one"))
        self.second = self.registry.register("support-llm", write_tiny_model(folder / "two", seed=2))
        self.state = StateFolder(folder / "state")

    def engines(self, *, vllm: str = "0.32.0", threads: int = 2) -> LocalEngines:
        settings = EngineSettings.model_validate({"vllm": {"version": vllm, "args": {"max-model-len": 512}}})
        return LocalEngines(self.registry, settings, ENVIRONMENT, self.state, name="support", threads=threads)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_an_engine_is_what_its_version_is(machine: Machine) -> None:
    engine = machine.engines().prepare(machine.first)
    assert (engine.version, engine.digest, engine.model) == ("1", machine.first.digest, "support")
    assert engine.workdir == str(machine.state.engines.absolute() / machine.first.digest)
    assert Path(engine.workdir, "model", "model.safetensors").is_file()
    assert machine.engines().folder(machine.first) == Path(engine.workdir, "model")


def test_its_command_names_no_folder_and_no_port_of_this_machine(machine: Machine) -> None:
    engine = machine.engines().prepare(machine.first)
    assert engine.command[0] == ENVIRONMENT.python
    assert PORT in engine.command
    assert "--max-model-len=512" in engine.command
    assert not any(str(machine.state.root) in argument for argument in engine.command)


def test_two_versions_share_nothing_but_the_compile_cache(machine: Machine) -> None:
    first, second = (machine.engines().prepare(version) for version in (machine.first, machine.second))
    assert first.workdir != second.workdir
    assert first.command == second.command
    assert first.environment["VLLM_CACHE_ROOT"] == second.environment["VLLM_CACHE_ROOT"]
    assert first.environment["VLLM_CACHE_ROOT"] == str(machine.state.cache.absolute())


def test_an_engine_takes_the_threads_it_was_given(machine: Machine) -> None:
    assert machine.engines(threads=3).prepare(machine.first).environment["OMP_NUM_THREADS"] == "3"


def test_memory_is_known_before_anything_starts(machine: Machine) -> None:
    assert machine.engines().prepare(machine.first).memory_bytes > machine.first.size_bytes


def test_preparing_twice_is_preparing_once(machine: Machine) -> None:
    engines = machine.engines()
    assert engines.prepare(machine.first) == engines.prepare(machine.first)


def test_files_that_are_not_the_registered_ones_become_no_engine(machine: Machine) -> None:
    source = machine.registry.folders["support-llm", "1"]
    (source / "chat_template.jinja").write_text("{{ 'something else' }}")
    with pytest.raises(DigestMismatch, match=r"chat_template\.jinja"):
        machine.engines().prepare(machine.first)
    assert not machine.engines().folder(machine.first).exists()


def test_another_vllm_than_the_pinned_one_becomes_no_engine(machine: Machine) -> None:
    with pytest.raises(VersionMismatch, match=r"the spec pins vLLM 0\.31\.0"):
        machine.engines(vllm="0.31.0").prepare(machine.first)
