"""One real build: vLLM compiles a tiny model, and starts again from what was packed."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from fakes.tiny_model import write_tiny_model

from engine_images.adapters.engine_root import serve
from engine_images.adapters.environment import find_engine_environment
from engine_images.adapters.scorer import CompletionScorer
from engine_images.adapters.shelf import Shelf
from engine_images.build.attempt import Attempt
from engine_images.build.builder import MUST_LOAD, Builder
from engine_images.build.model import Built, Order
from engine_images.build.order import order_for
from engine_images.compile.proof import named
from engine_images.manifest import CompileKey, ModelContract
from engine_images.spec import EngineSettings
from pipelines.build_servers import BuildServers
from registry.digests import digest_files, whole_digest
from tidegate.core.clock import SystemClock
from tidegate.core.errors import OutsideError

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

SERVERS = BuildServers(SystemClock(), name="tiny")


@dataclass(frozen=True)
class Build:
    order: Order
    built: Built
    shelf: Shelf
    folder: Path

    async def again(self) -> Built:
        return await Builder(self.shelf, SERVERS, CompletionScorer()).build(self.order, print)

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
    order = order_for(contract, model, settings, environment, name="tiny")
    order = order.model_copy(update={"prompts": order.prompts[:10]})
    shelf = Shelf(folder / "shelf")
    built = asyncio.run(Builder(shelf, SERVERS, CompletionScorer()).build(order, print))
    return Build(order, built, shelf, folder)


def test_a_fresh_process_loads_what_was_compiled_and_builds_nothing_again(build: Build) -> None:
    """The builder would have refused it otherwise; this says what it saw."""
    cold, built = build.built.record.cold, build.built.record.built
    assert cold is not None
    assert built is not None
    assert cold.log.saved
    assert built.log.loaded
    assert cold.log.init_seconds is not None
    assert built.log.init_seconds is not None
    assert built.log.init_seconds < cold.log.init_seconds / 2
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
    attempt = Attempt(
        "other", build.folder / "other", build.folder / "other" / "run", ("--max-num-seqs=7",), dict(MUST_LOAD)
    )
    launch = serve(
        build.order, build.built.root, attempt.run, arguments=attempt.arguments, environment=attempt.environment
    )

    with pytest.raises(OutsideError):
        await attempt.make(launch, SERVERS, CompletionScorer(), "tiny", build.order.prompts)

    found = attempt.told()
    assert not found.log.loaded
    assert found.key is not None
    assert "scheduler_config.max_num_seqs: 128 here, 7 in the other" in named(build.key.differences(found.key))
    # The entrypoint says so too, before vLLM starts.
    assert "argument:--max-num-seqs" in attempt.log.read_text(encoding="utf-8")
