"""One real build: vLLM compiles a tiny model, and starts again from what was packed."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine_images.adapters.environment import find_engine_environment
from engine_images.adapters.vllm_runner import MUST_LOAD, CompletionScorer, VllmRunner, log_of, start_of
from engine_images.build.builder import Builder, build_request
from engine_images.build.engine_store import EngineStore
from engine_images.build.model import BuildRequest, BuiltEngine
from engine_images.build.proof import without_hashes
from engine_images.manifest import CompileKey, ModelContract
from engine_images.ports import StartAttempt
from engine_images.spec import EngineSettings
from pipelines.adapters.local_engines import BuildServers
from registry.model_files import digest_files, whole_digest
from tidegate.core.clock import SystemClock
from tidegate.core.errors import OutsideError
from tidegate.testing import write_tiny_model

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

RUNNER = VllmRunner(BuildServers(SystemClock(), name="tiny"), CompletionScorer())


@dataclass(frozen=True)
class Build:
    order: BuildRequest
    built: BuiltEngine
    store: EngineStore
    folder: Path

    async def again(self) -> BuiltEngine:
        return await Builder(self.store, RUNNER).build(self.order, print)

    @property
    def key(self) -> CompileKey:
        """vLLM's own key of the start that compiled."""
        assert self.built.record.cold is not None
        assert self.built.record.cold.key is not None
        return self.built.record.cold.key


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    folder = tmp_path_factory.mktemp("build")
    model = write_tiny_model(folder)
    files = digest_files(model)
    contract = ModelContract(name="tiny", version="1", digest=whole_digest(files), files=files)
    environment = find_engine_environment()
    args = {"max-model-len": 256, "dtype": "float32"}
    settings = EngineSettings.model_validate({"vllm": {"version": environment.vllm, "args": args}})
    order = build_request(contract, model, settings, environment, name="tiny")
    order = order.model_copy(update={"prompts": order.prompts[:10]})
    store = EngineStore(folder / "store")
    built = asyncio.run(Builder(store, RUNNER).build(order, print))
    return Build(order, built, store, folder)


def test_a_fresh_process_loads_what_was_compiled_and_builds_nothing_again(build: Build) -> None:
    """The builder would have refused it otherwise; this says what it saw."""
    cold, built = build.built.record.cold, build.built.record.built
    assert cold is not None
    assert built is not None
    assert cold.log.saved
    assert built.log.loaded
    assert cold.log.init_seconds is not None
    assert built.log.init_seconds is not None
    assert built.log.init_seconds < cold.log.init_seconds
    assert built.key == cold.key


def test_compiled_and_eager_are_the_same_model(build: Build) -> None:
    agreement = build.built.record.agreement
    assert agreement is not None
    assert agreement.prompts == 10
    assert agreement.within(build.order.tolerance)


def test_the_manifest_names_every_file_of_the_cache(build: Build) -> None:
    manifest = json.loads((build.built.root / "manifest.json").read_bytes())
    assert any(path.endswith("/model") for path in manifest["cache"])
    assert any(path.endswith(".so") for path in manifest["cache"])
    assert not any(path.endswith(".lock") for path in manifest["cache"])
    assert {"vllm", "torch", "cpu", "compiler"} <= manifest["key"]["factors"].keys()


async def test_the_same_engine_is_found(build: Build) -> None:
    again = await build.again()
    assert again.found
    assert again.engine == build.built.engine


async def test_another_value_of_an_argument_misses_and_is_named(build: Build) -> None:
    attempt = StartAttempt(
        "other", build.folder / "other", build.folder / "other" / "run", ("--max-num-seqs=7",), dict(MUST_LOAD)
    )

    with pytest.raises(OutsideError):
        await RUNNER.start(build.order, build.built.root, attempt)

    found = start_of(attempt)
    assert not found.log.loaded
    assert found.key is not None
    assert "scheduler_config.max_num_seqs: 128 here, 7 in the other" in without_hashes(build.key.differences(found.key))
    # The entrypoint says so too, before vLLM starts.
    assert "argument:--max-num-seqs" in log_of(attempt).read_text(encoding="utf-8")


async def test_weights_that_are_quantized_while_they_are_loaded_are_compared_with_themselves(tmp_path: Path) -> None:
    """In 8 bits by channel, on a CPU: another model than the original, and near to it."""
    model = write_tiny_model(tmp_path)
    files = digest_files(model)
    contract = ModelContract(name="tiny", version="1", digest=whole_digest(files), files=files)
    environment = find_engine_environment()
    vllm = {
        "version": environment.vllm,
        "args": {"max-model-len": 256, "dtype": "float16", "quantization": "fp8_per_channel"},
    }
    asked = {"mode": "none", "quantization_tolerance": 2.0}
    settings = EngineSettings.model_validate({"vllm": vllm, "compile": asked})
    order = build_request(contract, model, settings, environment, name="tiny")
    few = {"prompts": order.prompts[:3]}
    order = order.model_copy(update=few)
    assert order.original is not None

    built = await Builder(EngineStore(tmp_path / "store"), RUNNER).build(order, print)

    effect = built.record.quantization
    assert effect is not None
    print(effect)
    assert effect.prompts == 3
    assert 0 < effect.mean < effect.largest
    assert 0 <= effect.same_choice <= 1
