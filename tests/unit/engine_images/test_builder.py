"""What a build does with what its engines do: compile once, keep only what is proven, find what was kept."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engine_images.adapters.builder import Builder, EngineServer
from engine_images.build.engine_store import EngineStore
from engine_images.build.model import BuildRequest, BuiltEngine
from engine_images.build.proof import ScoredPrompt
from engine_images.errors import NotProven
from engine_images.manifest import CACHE_FOLDER, CompileKey, Launch, ModelContract
from engine_images.model import EngineEnvironment, LaunchCommand
from tidegate.core.errors import OutsideError

KEY = CompileKey(factors={"cpu": "x86_64 avx2", "vllm": "0.32.0"})
COLD = "saved AOT compiled function to /c/model\ninit engine (profile, create kv cache, warmup model) took 80.0 s\n"
LOADED = "Directly load AOT compilation from path /c/model\ninit engine (profile, x) took 4.0 s\n"
EAGER = "init engine (profile, create kv cache, warmup model) took 0.5 s\n"


@dataclass
class Behaviour:
    """How a pretended vLLM behaves; each field breaks one promise."""

    misses: bool = False
    rebuilds: bool = False
    logprob: float = -1.0
    """Of every token of the built engine; the eager one says -1."""
    dies: bool = False
    seconds: float = 1.0
    """Of each answer of the built engine; the eager one needs 1."""
    starts: list[str] = field(default_factory=list)


class Servers:
    """Writes the log, the key and the cache that vLLM would."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour

    @asynccontextmanager
    async def start(self, launch: LaunchCommand, log: Path) -> AsyncIterator[EngineServer]:
        run = Path(launch.command[launch.command.index("--run") + 1])
        what = self._what(launch)
        self.behaviour.starts.append(what)
        if self.behaviour.dies:
            log.write_text("Traceback\nRuntimeError: out of memory\n")
            raise OutsideError("the engine died while it started")
        factors = {"model_config.dtype": "float32"}
        text = {"cold": COLD, "eager": EAGER, "built": LOADED}[what]
        if what == "built" and self.behaviour.misses:
            factors, text = {"model_config.dtype": "bfloat16"}, "AOT load failed\n"
        if what != "eager":
            Path(launch.environment["TIDEGATE_COMPILE_KEY"]).write_text(json.dumps(factors))
        log.write_text(text)
        self._cache(run / CACHE_FOLDER, what)
        if what == "built" and self.behaviour.misses:
            raise OutsideError("the engine died while it started")
        yield EngineServer(what, 20.0, lambda: 1 << 30)

    def _what(self, launch: LaunchCommand) -> str:
        if "--enforce-eager" in launch.command:
            return "eager"
        return "built" if "VLLM_FORCE_AOT_LOAD" in launch.environment else "cold"

    def _cache(self, cache: Path, what: str) -> None:
        (cache / "locks").mkdir(parents=True)
        (cache / "model").write_bytes(b"compiled")
        (cache / "kernel.so").write_bytes(b"ELF")
        (cache / "locks" / "kernel.lock").touch()
        if what == "built" and self.behaviour.rebuilds:
            (cache / "again.so").write_bytes(b"ELF")


@dataclass
class Machine:
    folder: Path
    behaviour: Behaviour = field(default_factory=Behaviour)
    said: list[str] = field(default_factory=list)

    async def score(self, url: str, model: str, prompts: Sequence[str]) -> tuple[ScoredPrompt, ...]:
        value, seconds = (self.behaviour.logprob, self.behaviour.seconds) if url == "built" else (-1.0, 1.0)
        answer = ScoredPrompt(prompt=(value, value), answer=("a",), logprobs=(value,), seconds=seconds)
        return (answer,) * len(prompts)

    async def build(self, order: BuildRequest) -> BuiltEngine:
        store, servers = EngineStore(self.folder / "store"), Servers(self.behaviour).start
        return await Builder(store, servers, score=self.score, key_of=lambda *_: KEY).build(order, self.said.append)

    def order(self, *, weights: str = "1", compiled: bool = True) -> BuildRequest:
        folder = self.folder / f"model-{weights}"
        folder.mkdir(exist_ok=True)
        (folder / "model.safetensors").write_text(weights)
        return BuildRequest(
            tolerance=0.01,
            model=ModelContract(name="llm", version="7", digest=weights, files={"model.safetensors": weights}),
            served_name="llm",
            folder=folder,
            launch=Launch(arguments=("--model", "model"), environment={}, drain_seconds=30),
            environment=EngineEnvironment(python="/engine/bin/python", vllm="0.32.0", recipe="0" * 64),
            entrypoint="e",
            compiled=compiled,
            prompts=("Hello!", "Bye."),
            memory_bytes=1,
        )


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    # What is compiled runs in a folder that its inputs name, below that for temporary files: each test has its own.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return Machine(tmp_path)


async def test_a_build_compiles_and_then_proves_what_it_packed(machine: Machine) -> None:
    built = await machine.build(machine.order())

    assert machine.behaviour.starts == ["cold", "eager", "built"]
    assert built.record.agreement is not None
    assert built.record.agreement.largest == 0
    manifest = json.loads((built.root / "manifest.json").read_bytes())
    assert manifest["engine"] == built.engine
    assert manifest["key"]["factors"] == dict(KEY.factors)
    assert sorted(manifest["cache"]) == ["kernel.so", "model"]
    assert (built.root / "entrypoint" / "tidegate_entrypoint" / "__main__.py").is_file()
    assert (built.root / "model" / "model.safetensors").is_file()


async def test_the_same_engine_is_found_and_not_built_again(machine: Machine) -> None:
    first = await machine.build(machine.order())
    second = await machine.build(machine.order())

    assert (first.found, second.found) == (False, True)
    assert first.engine == second.engine
    assert machine.behaviour.starts == ["cold", "eager", "built"]


async def test_other_weights_of_the_architecture_are_proven_but_not_compiled_again(machine: Machine) -> None:
    first = await machine.build(machine.order())
    machine.behaviour.starts.clear()
    second = await machine.build(machine.order(weights="2"))

    assert first.engine != second.engine
    assert machine.behaviour.starts == ["eager", "built"]


async def test_an_engine_that_runs_eagerly_is_laid_out_and_never_started(machine: Machine) -> None:
    built = await machine.build(machine.order(compiled=False))

    assert machine.behaviour.starts == []
    assert json.loads((built.root / "manifest.json").read_bytes())["key"] is None
    assert built.record.built is None


async def test_a_miss_fails_the_build_and_names_the_factor(machine: Machine) -> None:
    machine.behaviour.misses = True

    with pytest.raises(NotProven, match=r"model_config\.dtype: built with float32, here bfloat16"):
        await machine.build(machine.order())


async def test_kernels_that_are_built_again_fail_the_build(machine: Machine) -> None:
    machine.behaviour.rebuilds = True

    with pytest.raises(NotProven, match="1 of its kernels were built again"):
        await machine.build(machine.order())


async def test_another_model_than_eager_fails_the_build(machine: Machine) -> None:
    machine.behaviour.logprob = -1.5

    with pytest.raises(NotProven, match=r"differ by up to 0\.5"):
        await machine.build(machine.order())


async def test_what_failed_is_not_found_and_is_compiled_again(machine: Machine) -> None:
    machine.behaviour.rebuilds = True
    with pytest.raises(NotProven):
        await machine.build(machine.order())
    machine.behaviour = Behaviour()

    built = await machine.build(machine.order())

    assert not built.found
    assert machine.behaviour.starts == ["cold", "eager", "built"]


async def test_an_engine_that_does_not_start_is_the_error_itself(machine: Machine) -> None:
    machine.behaviour.dies = True

    with pytest.raises(OutsideError, match="died while it started"):
        await machine.build(machine.order())


async def test_two_builds_of_one_engine_at_once_build_it_once(machine: Machine) -> None:
    one, two = await asyncio.gather(*(machine.build(machine.order()) for _ in range(2)))

    assert sorted([one.found, two.found]) == [False, True]
    assert machine.behaviour.starts == ["cold", "eager", "built"]
    assert "waiting for another process that builds this engine" in machine.said


async def test_a_record_of_another_tidegate_is_no_engine(machine: Machine) -> None:
    built = await machine.build(machine.order())
    (built.root.parent / "record.json").write_text('{"of": "another version"}')

    assert not (await machine.build(machine.order())).found


async def test_an_engine_that_was_proven_less_strictly_is_proven_again(machine: Machine) -> None:
    machine.behaviour.logprob = -1.005
    first = await machine.build(machine.order())
    assert (await machine.build(machine.order())).found

    strict = machine.order().model_copy(update={"tolerance": 0.001})
    with pytest.raises(NotProven, match=r"differ by up to 0\.005 .* 0\.001 is accepted"):
        await machine.build(strict)
    machine.behaviour.logprob = -1.0
    again = await machine.build(strict)
    assert (again.engine, again.found) == (first.engine, False)


async def test_an_engine_below_the_floor_fails_the_build_also_when_it_was_built_before(machine: Machine) -> None:
    machine.behaviour.seconds = 0.8
    first = await machine.build(machine.order())
    fast = machine.order().model_copy(update={"floor": 1.2})
    assert (await machine.build(fast)).found

    machine.behaviour.seconds = 0.9
    with pytest.raises(NotProven, match=r"compiled is 1\.11 times as fast as eager; at least 1\.5"):
        await machine.build(machine.order().model_copy(update={"floor": 1.5}))
    assert first.record.built
    assert first.record.built.speedup == 1.25
