"""One real build: vLLM compiles a tiny model, and starts again from what was packed."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from engine_images.adapters.builder import Builder, StartAttempt, score_prompts, start_engine
from engine_images.adapters.environment import find_engine_environment
from engine_images.build.engine_store import EngineStore
from engine_images.build.model import BuildRequest, BuiltEngine, build_request
from engine_images.build.proof import ScoredPrompt, without_hashes
from engine_images.entrypoint.compile_key import differences
from engine_images.manifest import CompileKey, ModelContract
from engine_images.spec import EngineSettings
from pipelines.adapters.local_engines import build_servers
from registry.files import digest_files, whole_digest
from tidegate.core.clock import SystemClock
from tidegate.testing import write_tiny_model

pytestmark = [pytest.mark.engine, pytest.mark.long]


class MetricsReader:
    """Reads an engine's page of metrics before it asks it."""

    def __init__(self) -> None:
        self.said: list[str] = []
        """What each start told of its compile cache, in turn."""

    async def score(self, url: str, model: str, prompts: Sequence[str]) -> tuple[ScoredPrompt, ...]:
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            page = (await client.get(f"{url}/metrics")).text
        starts = re.findall(
            r'^tidegate_engine_(start|load)_seconds{compile_cache="(\w+)"} ([0-9.]+)$', page, re.MULTILINE
        )
        assert [what for what, *_ in starts] == ["start", "load"]
        [told] = {told for _, told, _ in starts}
        assert all(float(seconds) > 0 for *_, seconds in starts)
        self.said.append(told)
        return await score_prompts(url, model, prompts)


READER = MetricsReader()
SERVERS = build_servers(SystemClock(), name="tiny")


@dataclass(frozen=True)
class Build:
    order: BuildRequest
    built: BuiltEngine
    folder: Path
    told: tuple[str, ...]
    """What its starts told of their compile caches: the one that compiled, the eager one, the one that was built."""

    @property
    def key(self) -> CompileKey:
        """vLLM's own key of the start that compiled."""
        assert self.built.record.cold is not None
        assert self.built.record.cold.key is not None
        return self.built.record.cold.key


def contract_of(model: Path) -> ModelContract:
    files = digest_files(model)
    return ModelContract(name="tiny", version="1", digest=whole_digest(files), files=files)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    folder = tmp_path_factory.mktemp("build")
    model = write_tiny_model(folder)
    environment = find_engine_environment()
    args = {"max-model-len": 256, "dtype": "float32"}
    settings = EngineSettings.model_validate({"vllm": {"version": environment.vllm, "args": args}})
    order = build_request(contract_of(model), model, settings, environment, name="tiny", memory_bytes=1)
    order = order.model_copy(update={"prompts": order.prompts[:5]})
    built = asyncio.run(Builder(EngineStore(folder / "store"), SERVERS, score=READER.score).build(order, print))
    return Build(order, built, folder, tuple(READER.said))


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


def test_the_page_of_metrics_says_what_became_of_the_cache(build: Build) -> None:
    assert build.told == ("missed", "none", "found")


def test_the_manifest_names_every_file_of_the_cache(build: Build) -> None:
    manifest = json.loads((build.built.root / "manifest.json").read_bytes())
    assert any(path.endswith("/model") for path in manifest["cache"])
    assert any(path.endswith(".so") for path in manifest["cache"])
    assert not any(path.endswith(".lock") for path in manifest["cache"])
    assert {"vllm", "torch", "cpu", "compiler"} <= manifest["key"]["factors"].keys()


async def test_another_value_of_an_argument_misses_and_is_named(build: Build) -> None:
    attempt = StartAttempt("other", build.folder / "other", build.folder / "other" / "run", ("--max-num-seqs=7",))

    # It is not told to fail: vLLM compiles again, and serves.
    order = build.order.model_copy(update={"prompts": build.order.prompts[:1]})
    found, _ = await start_engine(SERVERS, READER.score, order, build.built.root, attempt)

    assert found.log.saved
    assert not found.log.loaded
    assert READER.said[-1] == "missed"
    assert found.key is not None
    differing = without_hashes(differences(build.key.factors, found.key.factors))
    assert "scheduler_config.max_num_seqs: built with 128, here 7" in differing
    # The entrypoint says so too, before vLLM starts.
    assert "argument:--max-num-seqs" in attempt.log.read_text(encoding="utf-8")
