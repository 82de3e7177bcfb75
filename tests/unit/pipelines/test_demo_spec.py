"""The demo's spec, and how patient a spec is."""

from __future__ import annotations

import sys
from datetime import timedelta
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from fakes.delivery.world import SPEC

from engine_images.accelerators import Accelerator
from pipelines.events.writer import WriterLimits
from pipelines.spec.delivery import Delivery
from tidegate.core.spec import load_spec, parse_spec

RUNNER = Path(__file__).parents[3] / "examples" / "demo" / "run.py"


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    found = spec_from_file_location("demo_run", RUNNER)
    assert found is not None and found.loader is not None
    module = module_from_spec(found)
    # Its dataclasses look for it there.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "demo_run", module)
        found.loader.exec_module(module)
    return module


@pytest.mark.parametrize("accelerator", [each for each in Accelerator if each.startswith("nvidia-")])
def test_engines_on_a_gpu_are_delivered_as_those_on_a_cpu(
    demo: ModuleType, accelerator: Accelerator, tmp_path: Path
) -> None:
    on_cpu = load_spec(demo.spec_on(Accelerator.CPU), Delivery)
    on_gpu = load_spec(demo.spec_on(accelerator, tmp_path), Delivery)
    assert on_gpu.engine.accelerator is accelerator
    dtype = "float16" if accelerator is Accelerator.T4 else "bfloat16"
    args = {name: value for name, value in on_cpu.engine.vllm.args.items() if name != "block-size"}
    assert on_gpu.engine.vllm.args == {**args, "dtype": dtype, "gpu-memory-utilization": 0.2}
    other = {"engine", "gates"}
    assert on_gpu.model_dump(exclude=other) == on_cpu.model_dump(exclude=other)
    assert on_gpu.gates.model_dump(exclude={"latency"}) == on_cpu.gates.model_dump(exclude={"latency"})


def test_the_spec_for_a_cpu_is_the_one_that_is_there(demo: ModuleType, tmp_path: Path) -> None:
    assert demo.spec_on(Accelerator.CPU, tmp_path) == RUNNER.with_name("delivery.yaml")
    assert list(tmp_path.iterdir()) == []


MINUTE = timedelta(minutes=1)


def test_it_is_said_in_one_place() -> None:
    text = SPEC + "patience: {metrics: 1m, registry: 5m, api: 20m, call: 3s, end: 5s}\n"
    spec = parse_spec(text, Delivery, file="delivery.yaml")
    assert spec.patience.api == 20 * MINUTE
    assert WriterLimits.of(spec.patience) == WriterLimits(call=3, patience=300, end=5)
