"""What torch.compile is worth for a module on this machine, as JSON: eager, compiled from nothing, from a saved cache.

    .venv/bin/python benchmarks/torch_compile.py --factory examples/torch/models.py:encoder --shape 1x64 --shape 8x128

Each mode is built as `tidegate engine build` builds it, and each number comes from a process of its own that starts
with empty caches. `start_s` has seconds from the process' start until every shape was answered once, and
`cold_to_cached` how many times faster the saved cache makes that.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from engine_images.adapters.environment import find_engine_environment
from engine_images.adapters.torch_runner import TorchRunner
from engine_images.build.builder import Builder, module_request
from engine_images.build.engine_store import EngineStore
from engine_images.build.model import BuiltEngine
from engine_images.build.torch_run import CompileOptions, TorchWorkload, shape_from
from engine_images.choices import CompileMode, TorchDevice
from engine_images.manifest import ModelContract

ENCODER = f"{Path(__file__).parents[1] / 'examples/torch/models.py'}:encoder"
MODES = [mode for mode in CompileMode if mode is not CompileMode.NONE]
MODULE = ModelContract(name="bench", version="0", digest="0" * 64, files={})


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a torch module eager and compiled.")
    parser.add_argument("--factory", default=ENCODER)
    parser.add_argument("--shape", action="append", help="such as 8x128; default: 1x64 and 8x128")
    parser.add_argument("--mode", action="append", choices=MODES, type=CompileMode, help="default: the first and last")
    parser.add_argument("--device", choices=list(TorchDevice), type=TorchDevice, default=TorchDevice.AUTO)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--tolerance", type=float, default=1e-3)
    arguments = parser.parse_args()
    subject = TorchWorkload(
        factory=arguments.factory,
        shapes=tuple(map(shape_from, arguments.shape or ("1x64", "8x128"))),
        device=arguments.device,
        repeats=arguments.repeats,
    )
    modes = arguments.mode or (CompileMode.DEFAULT, CompileMode.MAX_AUTOTUNE)
    with tempfile.TemporaryDirectory() as workdir:
        found = {mode: asyncio.run(build(subject, mode, arguments.tolerance, Path(workdir))) for mode in modes}
    print(json.dumps({"factory": Path(subject.factory).name, "modes": found}, indent=2))


async def build(subject: TorchWorkload, mode: CompileMode, tolerance: float, workdir: Path) -> dict[str, Any]:
    environment, store = find_engine_environment(), EngineStore(workdir / "store")
    options = CompileOptions(mode=mode)
    request = module_request(MODULE, workdir, subject, options, environment, tolerance=tolerance)
    built = await Builder(store, TorchRunner(environment)).build(request, lambda line: print(line, file=sys.stderr))
    return summary(built, store)


def summary(built: BuiltEngine, store: EngineStore) -> dict[str, Any]:
    record = built.record
    assert record.cold
    assert record.built
    assert record.eager
    details = json.loads((store.work_folder(built.engine) / "built.json").read_text(encoding="utf-8"))
    return {
        "machine": details["machine"],
        "start_s": {"eager": record.eager.seconds, "cold": record.cold.seconds, "cached": record.built.seconds},
        "cold_to_cached": record.cold.seconds / record.built.seconds,
        "agreement": details["agreement"],
        "eager": [timing.model_dump() for timing in record.eager.timings],
        "compiled": [timing.model_dump() for timing in record.built.timings],
        "memory_bytes": {"eager": record.eager.memory_bytes, "compiled": record.built.memory_bytes},
        "counters": details["counters"],
    }


if __name__ == "__main__":
    main()
