"""The factors that decide whether a saved cache may be used.

torch has a key of its own for each graph and compiles again in silence when it misses. And it does not look at
everything: which instructions a CPU has is not in a graph's key, and kernels are built for those of the machine.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

NOTHING = "nothing"

ISA = re.compile(r"avx2|fma|avx512\w*|avx_vnni|amx_\w+|asimd\w*|sve\w*|i8mm|bf16|f16c")
"""CPU flags that compilers of matrix code ask for."""

NEUTRAL = {"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_COMPILE_THREADS"}
"""Variables of the compilers that say where and how fast, not what."""


def factors(model: Any, options: Mapping[str, Any], shapes: Iterable[str], device: str) -> dict[str, str]:
    """Every factor by name, for `model` compiled here with `options`."""
    import torch

    found = {
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "model_code": code_digest(model),
        "model_structure": structure_digest(model),
        "shapes": " ".join(shapes),
        **{f"option:{name}": str(value) for name, value in options.items()},
        **variables(os.environ),
    }
    return found | (_gpu() if device == "cuda" else _cpu())


def differences(saved: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """Each factor that differs, by name, with both values: `threads: saved with 2, here 4`."""
    return [
        f"{name}: saved with {saved.get(name, NOTHING)}, here {here.get(name, NOTHING)}"
        for name in sorted(saved.keys() | here.keys())
        if saved.get(name, NOTHING) != here.get(name, NOTHING)
    ]


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that change what is compiled."""
    return {
        f"env:{name}": value
        for name, value in environment.items()
        if name.startswith(("TORCHINDUCTOR_", "TORCH_COMPILE_", "TORCHDYNAMO_", "TRITON_")) and name not in NEUTRAL
    }


def code_digest(model: Any) -> str:
    """Over the sources of every class in the model and its parents; torch's own come with its version."""
    kinds = {kind for module in model.modules() for kind in type(module).__mro__}
    files = {source for kind in kinds if (source := _source_of(kind))}
    digest = hashlib.sha256()
    # By content alone: the same code in another folder is the same code.
    for content in sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in files):
        digest.update(content.encode())
    return digest.hexdigest()


def structure_digest(model: Any) -> str:
    """Over names, shapes and types of all weights, not their values: versions of one model share a cache."""
    digest = hashlib.sha256()
    for name, tensor in _state(model):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
    return digest.hexdigest()


def _state(model: Any) -> Iterator[tuple[str, Any]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _source_of(kind: type) -> Path | None:
    if kind.__module__.partition(".")[0] in {"torch", "builtins", "abc", "typing"}:
        return None
    try:
        found = inspect.getsourcefile(kind)
    except TypeError:
        return None
    return Path(found) if found and Path(found).is_file() else None


def _cpu() -> dict[str, str]:
    import torch

    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features"))), [])
    return {
        "cpu": " ".join([platform.machine(), *sorted({flag for flag in flags if ISA.fullmatch(flag)})]),
        "compiler": _first_line([os.environ.get("CXX", "g++"), "--version"]),
        "threads": str(torch.get_num_threads()),
        # The include paths are part of the name of each compiled kernel.
        "environment_path": sys.prefix,
    }


def _gpu() -> dict[str, str]:
    import torch

    major, minor = torch.cuda.get_device_capability()
    return {
        "gpu": f"{torch.cuda.get_device_name()} sm_{major}{minor}",
        "cuda": str(torch.version.cuda),
        "compiler": f"triton {_version('triton')}",
    }


def _version(distribution: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return NOTHING


def _first_line(command: list[str]) -> str:
    program = shutil.which(command[0])
    if program is None:
        return NOTHING
    done = subprocess.run([program, *command[1:]], capture_output=True, text=True, check=False)
    return next(iter(done.stdout.splitlines()), NOTHING)
