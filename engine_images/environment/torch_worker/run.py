"""The order of a trial in its process, and what is measured: latency, memory, torch's own counters."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from . import cache
from .job import Job, graph_break
from .subject import LoadedModel, load_factory, make, tensors

DYNAMIC = {"auto": None, "yes": True, "no": False}
"""As torch takes it."""

SETTLING = 3
"""Calls before the measured ones: caches of the CPU, clocks of the GPU, torch's CUDA graphs."""


@dataclass
class Timed:
    """Seconds of calls that ended well; of `partner` only those whose partner did."""

    seconds: list[float]
    partner: list[float]
    errors: int

    def speedup(self) -> float | None:
        """The median over pairs of the other's time to ours; None where there are no pairs."""
        ratios = [other / own for own, other in zip(self.seconds, self.partner, strict=False)]
        return percentile(ratios, 0.5) if ratios else None


def latencies(call: Callable[[], Any], repeats: int, device: str, partner: Callable[[], Any] | None = None) -> Timed:
    """Time `call` again and again, in turn with `partner`: whatever else the machine does meets both alike."""
    timed = _on_gpu if device == "cuda" else _on_cpu
    for _ in range(SETTLING):
        call()
        if partner is not None:
            partner()
    found = Timed([], [], 0)
    for _ in range(repeats):
        try:
            found.seconds.append(timed(call))
        except RuntimeError:
            found.errors += 1
            continue
        if partner is not None:
            found.partner.append(timed(partner))
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
        "graph_breaks": len(breaks()),
    }


def breaks() -> list[str]:
    """Why torch broke the graph, and where, as often as it did."""
    from torch._dynamo.utils import graph_break_reasons

    return [
        graph_break(each.reason, [(frame.filename, frame.lineno or 0, frame.name) for frame in each.user_stack])
        for each in graph_break_reasons
    ]


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


Progress = Callable[[str], None]
EAGER_OUTPUTS = "eager.pt"


class Stopwatch:
    """Seconds of each part of the start."""

    def __init__(self, began: float) -> None:
        self.seconds: dict[str, float] = {"python": time.monotonic() - began}
        self._began = began

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - began

    def ready(self) -> None:
        self.seconds["ready"] = time.monotonic() - self._began


def trial(job: Job, progress: Progress) -> dict[str, Any]:
    """Do what `job` says.

    Raises:
        Failure: with one line; whatever else comes out of torch is translated by the caller.
    """
    watch = Stopwatch(job.spawned)
    inductor = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    with watch.part("imports"):
        import torch
    with watch.part("model"):
        subject = make(load_factory(job.factory), job.shapes, job.device, job.files)
    options = {"mode": job.mode, "dynamic": job.dynamic, "fullgraph": job.fullgraph}
    with watch.part("key"):
        factors = cache.factors(subject.model, options, subject.calls, subject.device)
    if job.key_only:
        return {"factors": factors}
    if job.load:
        with watch.part("load"):
            cache.load(Path(job.load), factors, inductor)
    there = len(cache.kernels(inductor))
    with watch.part("compiler"):
        model = _compiled(subject, job) if job.mode else subject.model
    with torch.inference_mode():
        firsts, outputs = _warm_up(model, subject, watch, progress)
        memory = _memory(model, subject)
        measured = _measured(model, subject, job.repeats, progress)
    return {
        "machine": _machine(subject.device),
        "seconds": watch.seconds,
        "shapes": [{"name": name, "first_seconds": firsts[name], **measured[name]} for name in subject.calls],
        **memory,
        "counters": {**counters(), "kernels_built": len(cache.kernels(inductor)) - there},
        "breaks": breaks(),
        "agreement": _agreement(outputs, subject, job),
        "factors": factors,
        "saved_bytes": cache.save(Path(job.save), factors, inductor) if job.save else None,
    }


def _compiled(subject: LoadedModel, job: Job) -> Any:
    import torch

    # What an earlier process learned about shapes would give other graphs than the ones that it saved.
    torch._dynamo.config.automatic_dynamic_local_pgo = False
    return torch.compile(subject.model, mode=job.mode, dynamic=DYNAMIC[job.dynamic or "auto"], fullgraph=job.fullgraph)


def _warm_up(
    model: Any, subject: LoadedModel, watch: Stopwatch, progress: Progress
) -> tuple[dict[str, float], dict[str, list[Any]]]:
    """The first call of each shape: its seconds, and what it gave."""
    firsts, outputs = {}, {}
    with watch.part("warm_up"):
        for name, (positional, named) in subject.calls.items():
            progress(f"first call of shape {name}")
            began = time.monotonic()
            # Copied at once: the next call may write into the same memory, where CUDA graphs are used.
            outputs[name] = [tensor.detach().cpu().clone() for tensor in tensors(model(*positional, **named))]
            firsts[name] = time.monotonic() - began
    watch.ready()
    return firsts, outputs


def _memory(model: Any, subject: LoadedModel) -> dict[str, int | None]:
    """What serving takes, without what compiling took, and before the eager model takes turns."""
    import torch

    on_gpu = subject.device == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    for positional, named in subject.calls.values():
        model(*positional, **named)
    peak = torch.cuda.max_memory_allocated() if on_gpu else None
    return {"memory_bytes": memory_bytes(), "gpu_peak_bytes": peak}


def _measured(model: Any, subject: LoadedModel, repeats: int, progress: Progress) -> dict[str, dict[str, Any]]:
    """Each shape's numbers; a compiled model takes turns with the eager one."""
    found = {}
    for name, (positional, named) in subject.calls.items():
        progress(f"{repeats} calls of shape {name}")
        call = partial(model, *positional, **named)
        partner = None if model is subject.model else partial(subject.model, *positional, **named)
        timed = latencies(call, repeats, subject.device, partner)
        seconds = timed.seconds
        found[name] = {
            "samples": subject.samples(name),
            "calls": repeats,
            "errors": timed.errors,
            "p50_ms": percentile(seconds, 0.5) * 1000 if seconds else None,
            "p99_ms": percentile(seconds, 0.99) * 1000 if seconds else None,
            "samples_per_second": subject.samples(name) * len(seconds) / sum(seconds) if seconds else 0.0,
            "speedup": timed.speedup(),
        }
    return found


def _agreement(outputs: dict[str, list[Any]], subject: LoadedModel, job: Job) -> dict[str, Any] | None:
    """How far this process' outputs are from the eager ones; the eager process leaves them for those after it."""
    import torch

    weights, file = _weights_digest(subject.model), Path(job.workdir, EAGER_OUTPUTS)
    if job.mode is None:
        torch.save({"outputs": outputs, "weights": weights}, file)
        return {"same_weights": True, "largest_difference": 0.0, "largest_output": _largest(outputs)}
    if not file.exists():
        return None
    eager = torch.load(file, weights_only=True)
    return {
        "same_weights": eager["weights"] == weights,
        "largest_difference": max(
            (_difference(a, b) for name in outputs for a, b in zip(eager["outputs"][name], outputs[name], strict=True)),
            default=0.0,
        ),
        "largest_output": _largest(eager["outputs"]),
    }


def _difference(eager: Any, compiled: Any) -> float:
    """The largest of any element; infinite where the kinds of tensor differ, or only one is a number."""
    import torch

    if eager.shape != compiled.shape or eager.dtype != compiled.dtype:
        return float("inf")
    a, b = eager.double(), compiled.double()
    same = (a == b) | (torch.isnan(a) & torch.isnan(b))
    apart = torch.where(same, torch.zeros_like(a), (a - b).abs())
    return float(torch.nan_to_num(apart, nan=float("inf")).max()) if apart.numel() else 0.0


def _largest(outputs: dict[str, list[Any]]) -> float:
    return max((float(tensor.double().abs().max()) for each in outputs.values() for tensor in each), default=0.0)


def _weights_digest(model: Any) -> str:
    import torch

    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def _machine(device: str) -> dict[str, Any]:
    import torch

    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else f"{cpu}, {torch.get_num_threads()} threads",
        "torch": str(torch.__version__),
    }
