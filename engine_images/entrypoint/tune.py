"""The environment of vLLM's process: threads, memory allocator, caches. Pure, but for looking at this machine.

What the manifest says holds, unless the operator set the variable in the container: then the operator's counts,
and the compile key says which variable that was.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path

TCMALLOC = (
    "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4",
    "/usr/lib/aarch64-linux-gnu/libtcmalloc_minimal.so.4",
    "/usr/lib64/libtcmalloc_minimal.so.4",
)
"""Where distributions put the allocator that vLLM recommends for CPUs."""

ARENAS = "4"
"""Of glibc's malloc, where there is no tcmalloc: its default of eight a core holds on to freed memory."""

CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def child_environment(
    inherited: Mapping[str, str],
    manifest: Mapping[str, str],
    *,
    cache: Path,
    packages: Path,
    threads: int | None,
    allocator: str | None,
) -> dict[str, str]:
    """What vLLM's process sees.

    Args:
        inherited: our own environment.
        manifest: the environment that the engine was built with.
        cache: the compile cache, writable.
        packages: the folder that holds this package, for the middleware.
        threads: for computing on a CPU; None leaves them to vLLM.
        allocator: a library to allocate memory with; None means the C library's own.
    """
    merged = {**manifest, **inherited}
    tuned = {"OMP_WAIT_POLICY": "passive"} | ({"LD_PRELOAD": allocator} if allocator else {"MALLOC_ARENA_MAX": ARENAS})
    if threads is not None:
        merged["OMP_NUM_THREADS"] = str(threads)
    path = [str(packages), *filter(None, [inherited.get("PYTHONPATH")])]
    placed = {
        "VLLM_CACHE_ROOT": str(cache),
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)),
        # The folder that vLLM starts in holds files of a model version: never import from there.
        "PYTHONSAFEPATH": "1",
    }
    return {**tuned, **merged, **placed}


def usable_cores(quota: Path = CGROUP_QUOTA) -> int:
    """Cores that this process may use: its affinity and its container's limit."""
    cores = len(os.sched_getaffinity(0))
    try:
        allowed, period = quota.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return cores
    return cores if allowed == "max" else max(1, min(cores, math.floor(int(allowed) / int(period))))


def find_allocator() -> str | None:
    """tcmalloc, where this machine has it."""
    return next((path for path in TCMALLOC if Path(path).exists()), None)
