"""Trials of torch models that nobody ran."""

from __future__ import annotations

from collections.abc import Mapping

from engine_images.torch_compile.choices import Mode
from engine_images.torch_compile.model import Agreement, Counters, Job, Machine, Options, Run, ShapeRun, Subject
from engine_images.torch_compile.trial import Progress

SUBJECT = Subject(factory="models.py:encoder", shapes=((1, 64), (8, 128)))
DEFAULT = Options(mode=Mode.DEFAULT)


def shape_run(
    name: str = "1x64", *, samples: int = 1, per_second: float = 100.0, speedup: float | None = None, errors: int = 0
) -> ShapeRun:
    return ShapeRun(
        name=name,
        first_seconds=1.0,
        samples=samples,
        calls=50,
        errors=errors,
        p50_ms=10.0,
        p99_ms=12.0,
        samples_per_second=per_second,
        speedup=speedup,
    )


def counters(**changed: int) -> Counters:
    """One graph found in a cache, nothing compiled."""
    found = {
        "graph_hits": 1,
        "graph_misses": 0,
        "graph_bypassed": 0,
        "autograd_hits": 1,
        "autograd_misses": 0,
        "graph_breaks": 0,
        "kernels_built": 0,
    }
    return Counters(**(found | changed))


def run(
    *,
    per_second: float = 100.0,
    speedup: float | None = None,
    difference: float = 1e-6,
    same_weights: bool = True,
    counted: Counters | None = None,
    factors: Mapping[str, str] | None = None,
    errors: int = 0,
) -> Run:
    return Run(
        machine=Machine(device="a CPU", torch="2.13.0+cpu"),
        seconds={"ready": 5.0},
        shapes=(
            shape_run(per_second=per_second, speedup=speedup, errors=errors),
            shape_run("8x128", samples=8, per_second=2 * per_second, speedup=speedup),
        ),
        memory_bytes=500_000_000,
        gpu_peak_bytes=None,
        counters=counted or counters(),
        agreement=Agreement(same_weights=same_weights, largest_difference=difference, largest_output=2.0),
        factors=factors or {"torch": "2.13.0+cpu"},
        saved_bytes=None,
    )


class ScriptedProcesses:
    """`Processes` that write what is to be saved, and answer what they were told to."""

    def __init__(self, cached: Run | None = None) -> None:
        """`cached` is what a start from a saved cache finds."""
        self.jobs: list[Job] = []
        self._cached = cached or run()

    def run(self, job: Job, progress: Progress) -> Run:
        self.jobs.append(job)
        if job.save:
            job.save.mkdir()
            (job.save / "key.json").write_text("{}", encoding="utf-8")
        return self._cached if job.load else run()
