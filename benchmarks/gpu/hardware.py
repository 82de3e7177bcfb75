"""The machine that is measured: its GPU by its driver's name, what it runs, and how much memory an engine takes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import machine
from engine_images.accelerators import DEVICES, MEBIBYTE, Accelerator
from engine_images.adapters.gpus import SECONDS, TOOL, gpu_table
from engine_images.manifest import CompileKey
from tidegate.core.errors import OutsideError, UsageError

FACTORS = ("vllm", "torch", "python", "compiler", "cpu", "gpu", "driver", "cuda")
"""Of the compile key: what a figure depends on."""


def gpu_names() -> list[str]:
    """Of the GPUs that may be used, as the driver calls them."""
    return [name for (name,) in gpu_table("name")]


def accelerator_here(names: Sequence[str], *, small: bool) -> Accelerator:
    """What engines are measured on, given the names of the GPUs that the driver sees.

    Raises:
        OutsideError: there is no GPU, and a CPU was not asked for.
        UsageError: it is one whose memory is not known here.
    """
    if not names and small:
        return Accelerator.CPU
    if not names:
        raise OutsideError("this machine has no GPU (nvidia-smi)", hint="with --small it runs on a CPU")
    for accelerator, device in DEVICES.items():
        if names[0] in device.names:
            return accelerator
    known = ", ".join(name for device in DEVICES.values() for name in device.names)
    raise UsageError(f"found the GPU {names[0]}; expected one of {known}", hint="measure on one of these")


def ran_on(key: CompileKey) -> dict[str, Any]:
    """The machine, and what of an engine's compile key its figures depend on."""
    known = {name: key.factors[name] for name in FACTORS if name in key.factors}
    return machine() | {"processor": _processor()} | known


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def bytes_by_process(lines: Iterable[str]) -> Mapping[int, int]:
    """GPU memory by process id, of `nvidia-smi --query-compute-apps=pid,used_gpu_memory`."""
    found: dict[int, int] = {}
    for line in lines:
        process, _, used = (part.strip() for part in line.partition(","))
        if process.isdecimal() and used.isdecimal():
            found[int(process)] = found.get(int(process), 0) + int(used) * MEBIBYTE
    return found


def gpu_bytes(processes: Iterable[int], before: int) -> tuple[int, str]:
    """GPU memory of these processes, and how it was told.

    In a container the driver may name processes by numbers of the host's: then it is what the device has in use more
    than `before`.
    """
    used = bytes_by_process(_compute_apps())
    mine = sum(used.get(process, 0) for process in set(processes))
    if mine:
        return mine, "nvidia-smi, of the engine's processes"
    return device_bytes() - before, "nvidia-smi, of the device, less what was in use before"


def device_bytes() -> int:
    """Memory in use on the first GPU that may be used."""
    used = [used for (used,) in gpu_table("memory.used")]
    return int(used[0]) * MEBIBYTE if used and used[0].isdecimal() else 0


def _compute_apps() -> list[str]:
    command = [TOOL, "--query-compute-apps=pid,used_gpu_memory", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.splitlines()
