"""The order of one trial. `ready` is when every shape was answered once: what a cold start is."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from . import key, measure, store
from .job import Job
from .subject import Subject, load_factory, make, tensors

Progress = Callable[[str], None]
EAGER_OUTPUTS = "eager.pt"


class Watch:
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
    watch = Watch(job.spawned)
    inductor = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    with watch.part("imports"):
        import torch
    with watch.part("model"):
        subject = make(load_factory(job.factory), job.shapes, job.device)
    options = {"mode": job.mode, "dynamic": job.dynamic, "fullgraph": job.fullgraph}
    with watch.part("key"):
        factors = key.factors(subject.model, options, subject.calls, subject.device)
    if job.load:
        with watch.part("load"):
            store.load(Path(job.load), factors, inductor)
    there = len(store.kernels(inductor))
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
        "counters": {**measure.counters(), "kernels_built": len(store.kernels(inductor)) - there},
        "agreement": _agreement(outputs, subject, job),
        "factors": factors,
        "saved_bytes": store.save(Path(job.save), factors, inductor) if job.save else None,
    }


def _compiled(subject: Subject, job: Job) -> Any:
    import torch

    # What an earlier process learned about shapes would give other graphs than the ones that it saved.
    torch._dynamo.config.automatic_dynamic_local_pgo = False
    return torch.compile(subject.model, mode=job.mode, dynamic=job.dynamic, fullgraph=job.fullgraph)


def _warm_up(
    model: Any, subject: Subject, watch: Watch, progress: Progress
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


def _memory(model: Any, subject: Subject) -> dict[str, int | None]:
    """What serving takes, without what compiling took, and before the eager model takes turns."""
    import torch

    on_gpu = subject.device == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    for positional, named in subject.calls.values():
        model(*positional, **named)
    peak = torch.cuda.max_memory_allocated() if on_gpu else None
    return {"memory_bytes": measure.memory_bytes(), "gpu_peak_bytes": peak}


def _measured(model: Any, subject: Subject, repeats: int, progress: Progress) -> dict[str, dict[str, Any]]:
    """Each shape's numbers; a compiled model takes turns with the eager one."""
    found = {}
    for name, (positional, named) in subject.calls.items():
        progress(f"{repeats} calls of shape {name}")
        call = partial(model, *positional, **named)
        beside = None if model is subject.model else partial(subject.model, *positional, **named)
        timed = measure.latencies(call, repeats, subject.device, beside)
        seconds = timed.seconds
        found[name] = {
            "samples": subject.samples(name),
            "calls": repeats,
            "errors": timed.errors,
            "p50_ms": measure.percentile(seconds, 0.5) * 1000 if seconds else None,
            "p99_ms": measure.percentile(seconds, 0.99) * 1000 if seconds else None,
            "samples_per_second": subject.samples(name) * len(seconds) / sum(seconds) if seconds else 0.0,
            "speedup": timed.speedup(),
        }
    return found


def _agreement(outputs: dict[str, list[Any]], subject: Subject, job: Job) -> dict[str, Any]:
    """How far this process' outputs are from the eager ones; the eager process leaves them for the others."""
    import torch

    weights, file = _weights_digest(subject.model), Path(job.workdir, EAGER_OUTPUTS)
    if job.mode is None:
        torch.save({"outputs": outputs, "weights": weights}, file)
        return {"same_weights": True, "largest_difference": 0.0, "largest_output": _largest(outputs)}
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
