"""The GPUs of this machine and the memory that is free on them, as NVIDIA's driver says."""

from __future__ import annotations

from rollouts.local.machine import GpuMemory
from tidegate.core.adapters.nvidia_smi import gpu_table

MEBIBYTE = 1 << 20


def measured_gpus() -> tuple[GpuMemory, ...]:
    """Those that may be used now. One whose driver tells no memory, as where it is the machine's own, is left out."""
    rows = gpu_table("index", "name", "memory.free")
    return tuple(
        GpuMemory(index=int(index), name=name, free_bytes=int(free) * MEBIBYTE)
        for index, name, free in rows
        if index.isdecimal() and free.isdecimal()
    )
