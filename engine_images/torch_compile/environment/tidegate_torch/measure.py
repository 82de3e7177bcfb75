"""What one process can tell of itself: how fast it answers, what memory it takes, what torch counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SETTLING = 3
"""Calls before the measured ones: caches of the CPU, clocks of the GPU, torch's CUDA graphs."""


@dataclass
class Timed:
    """Seconds of calls that ended well; of `beside` only those whose partner did."""

    seconds: list[float]
    beside: list[float]
    errors: int

    def speedup(self) -> float | None:
        """The median over pairs of the other's time to ours; None where there are no pairs."""
        ratios = [other / own for own, other in zip(self.seconds, self.beside, strict=False)]
        return percentile(ratios, 0.5) if ratios else None


def latencies(call: Callable[[], Any], repeats: int, device: str, beside: Callable[[], Any] | None = None) -> Timed:
    """Time `call` again and again, in turn with `beside`: whatever else the machine does meets both alike."""
    timed = _on_gpu if device == "cuda" else _on_cpu
    for _ in range(SETTLING):
        call()
        if beside is not None:
            beside()
    found = Timed([], [], 0)
    for _ in range(repeats):
        try:
            found.seconds.append(timed(call))
        except RuntimeError:
            found.errors += 1
            continue
        if beside is not None:
            found.beside.append(timed(beside))
    return found


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that is not below `share` of all; 0.5 is the median."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-len(ordered) * int(share * 1000) // 1000) - 1))]


def memory_bytes() -> int:
    """Of this process and the compilers that it keeps, shared pages counted in parts."""
    return sum(_pss(process) for process in _family())


def counters() -> dict[str, int]:
    """Torch's own: which graphs came from a cache, and where it broke them."""
    from torch._dynamo.utils import counters as counted

    inductor, autograd = counted["inductor"], counted["aot_autograd"]
    return {
        "graph_hits": inductor["fxgraph_cache_hit"],
        "graph_misses": inductor["fxgraph_cache_miss"],
        "graph_bypassed": inductor["fxgraph_cache_bypass"],
        "autograd_hits": autograd["autograd_cache_hit"],
        "autograd_misses": autograd["autograd_cache_miss"],
        "graph_breaks": sum(counted["graph_break"].values()),
    }


def _on_cpu(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _on_gpu(call: Callable[[], Any]) -> float:
    import torch

    began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    began.record()
    call()
    ended.record()
    torch.cuda.synchronize()
    return float(began.elapsed_time(ended)) / 1000


def _family() -> list[Path]:
    family = [Path("/proc/self").resolve()]
    for process in family:
        for children in process.glob("task/*/children"):
            try:
                family += [Path("/proc", child) for child in children.read_text(encoding="ascii").split()]
            except OSError:
                continue
    return family


def _pss(process: Path) -> int:
    try:
        lines = (process / "smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
