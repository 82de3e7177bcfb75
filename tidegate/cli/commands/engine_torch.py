"""`tidegate engine torch`: a torch model, eager and compiled, side by side."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from engine_images.adapters.environment import find_engine_environment
from engine_images.adapters.torch_processes import TorchProcesses
from engine_images.torch_compile.choices import Device, Dynamic, Mode
from engine_images.torch_compile.compare import rows
from engine_images.torch_compile.model import Options, Shape, Subject, Trial
from engine_images.torch_compile.trial import try_compiled, try_saved
from tidegate.cli.output import note, print_json
from tidegate.core.errors import UsageError


@dataclass(frozen=True)
class Asked:
    """What a person asked for."""

    factory: str
    shapes: tuple[str, ...]
    modes: tuple[Mode, ...]
    dynamic: Dynamic
    fullgraph: bool
    device: Device
    repeats: int
    tolerance: float
    save: Path | None
    load: Path | None
    timeout: float


def run(asked: Asked, *, as_json: bool) -> int:
    """Try, and print what came of it."""
    if asked.save and asked.load:
        raise UsageError("a cache is either made or used", hint="give either --save or --load")
    subject = Subject(
        factory=asked.factory,
        shapes=tuple(_shape(text) for text in asked.shapes),
        device=asked.device,
        repeats=asked.repeats,
    )
    trial = _try(asked, subject)
    if as_json:
        print_json(trial.model_dump(mode="json") | {"table": [row.model_dump() for row in rows(trial)]})
        return 0
    from tidegate.cli.torch_table import show

    show(trial)
    return 0


def _try(asked: Asked, subject: Subject) -> Trial:
    options = [
        Options(mode=mode, dynamic=asked.dynamic, fullgraph=asked.fullgraph) for mode in dict.fromkeys(asked.modes)
    ]
    environment = find_engine_environment()
    with tempfile.TemporaryDirectory(prefix="tidegate-torch-") as workdir:
        processes = TorchProcesses(environment, Path(workdir), timeout_seconds=asked.timeout)
        if asked.load:
            return try_saved(processes, subject, options, load=asked.load, tolerance=asked.tolerance, progress=note)
        return try_compiled(
            processes,
            subject,
            options,
            save=asked.save,
            tolerance=asked.tolerance,
            progress=note,
        )


def _shape(text: str) -> Shape:
    sizes = text.lower().split("x")
    if not all(size.isascii() and size.isdigit() and int(size) for size in sizes):
        raise UsageError(f"--shape: found {text!r}; expected sizes such as 8x128")
    return tuple(int(size) for size in sizes)
