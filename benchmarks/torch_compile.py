"""What torch.compile is worth for a model on this machine, as JSON: eager, compiled from nothing, from a saved cache.

    .venv/bin/python benchmarks/torch_compile.py --factory examples/torch/models.py:encoder --shape 1x64 --shape 8x128

Each number comes from a process of its own that starts with empty caches. `cold_start` has seconds from the
process' start until every shape was answered once, and how many times faster the saved cache makes that.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from engine_images.adapters.environment import find_engine_environment
from engine_images.adapters.torch_processes import TorchProcesses
from engine_images.torch_compile.choices import Device, Mode
from engine_images.torch_compile.compare import rows
from engine_images.torch_compile.model import Compiled, Options, Subject, Trial
from engine_images.torch_compile.trial import try_compiled

ENCODER = f"{Path(__file__).parents[1] / 'examples/torch/models.py'}:encoder"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a torch model eager and compiled.")
    parser.add_argument("--factory", default=ENCODER)
    parser.add_argument("--shape", action="append", help="such as 8x128; default: 1x64 and 8x128")
    parser.add_argument("--mode", action="append", choices=list(Mode), type=Mode, help="default: default, max-autotune")
    parser.add_argument("--device", choices=list(Device), type=Device, default=Device.AUTO)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--tolerance", type=float, default=1e-3)
    arguments = parser.parse_args()
    subject = Subject(
        factory=arguments.factory,
        shapes=tuple(tuple(map(int, shape.split("x"))) for shape in arguments.shape or ("1x64", "8x128")),
        device=arguments.device,
        repeats=arguments.repeats,
    )
    options = [Options(mode=mode) for mode in arguments.mode or (Mode.DEFAULT, Mode.MAX_AUTOTUNE)]
    with tempfile.TemporaryDirectory() as workdir:
        trial = try_compiled(
            TorchProcesses(find_engine_environment(), Path(workdir), timeout_seconds=1800),
            subject,
            options,
            save=None,
            tolerance=arguments.tolerance,
            progress=lambda line: print(line, file=sys.stderr),
        )
    print(json.dumps(summary(trial), indent=2))


def summary(trial: Trial) -> dict[str, Any]:
    return {
        "machine": trial.eager.machine.model_dump(),
        "factory": Path(trial.subject.factory).name,
        "table": [row.model_dump() for row in rows(trial)],
        "cold_start": {
            "eager_s": trial.eager.seconds["ready"],
            **{str(each.options.mode): starts(each) for each in trial.compiled},
        },
    }


def starts(compiled: Compiled) -> dict[str, Any]:
    assert compiled.cold is not None
    cold, cached = compiled.cold.seconds, compiled.cached.seconds
    return {
        "cold_s": cold["ready"],
        "cached_s": cached["ready"],
        "cold_to_cached": cold["ready"] / cached["ready"],
        "warm_up_cold_to_cached": cold["warm_up"] / cached["warm_up"],
        "saved_bytes": compiled.cold.saved_bytes,
        "cached_counters": compiled.cached.counters.model_dump(),
    }


if __name__ == "__main__":
    main()
