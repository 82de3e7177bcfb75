"""One real start of vLLM, asked everything that needs one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.engines.contract import EngineContract, RunningEngine, running_engine
from fakes.engines.exposition import exported

from engine_images.accelerators import Accelerator
from engine_images.arguments.serving import serving
from engine_images.memory import DEFAULT_KV_CACHE_BYTES, MEBIBYTE, block_tokens, bytes_per_token
from engine_images.shape import shape_of
from slo.metrics import VLLM

pytestmark = [pytest.mark.engine, pytest.mark.long]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    with running_engine(tmp_path_factory.mktemp("engine")) as running:
        yield running


class TestVllm(EngineContract): ...


def test_the_chat_template_can_be_read_from_the_engine(engine: RunningEngine) -> None:
    template = (engine.model / "chat_template.jinja").read_text(encoding="utf-8")
    assert engine.client.get("/tokenizer_info").json()["chat_template"] == template


def test_the_estimate_of_memory_is_near_what_the_engine_takes(engine: RunningEngine) -> None:
    assert engine.chat().is_success
    taken = _memory_below(Path(engine.launch.workdir))
    assert taken < engine.launch.memory_bytes < taken + 600 * MEBIBYTE


def test_the_inventory_of_metrics_is_what_it_exports(engine: RunningEngine) -> None:
    assert engine.chat().is_success
    found = exported(engine.metrics())
    assert [metric.name for metric in VLLM if not metric.only_with and metric.name not in found] == []


def test_the_kv_cache_has_as_many_blocks_as_were_counted_before(engine: RunningEngine) -> None:
    metrics = engine.metrics()
    info = next(line for line in metrics.splitlines() if line.startswith("vllm:cache_config_info"))
    shape = shape_of(json.loads((engine.model / "config.json").read_text(encoding="utf-8")))
    asked = serving({"max-model-len": 1024, "dtype": "float32"})
    block = block_tokens(asked, Accelerator.CPU)
    blocks = DEFAULT_KV_CACHE_BYTES // int(block * bytes_per_token(asked, shape) * shape.layers)
    assert f'kv_cache_size_tokens="{blocks * block}"' in info
    assert f'num_gpu_blocks="{blocks}"' in info


def _memory_below(workdir: Path) -> int:
    """Bytes of the processes that run below `workdir`'s folder, shared pages counted in parts."""
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink().is_relative_to(workdir.parent):
                lines = (process / "smaps_rollup").read_text(encoding="ascii").splitlines()
                total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
        except OSError:
            continue
    return total
