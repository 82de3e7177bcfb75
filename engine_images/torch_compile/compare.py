"""Eager and compiled side by side: the table of a trial, as numbers."""

from __future__ import annotations

from collections.abc import Iterator

from engine_images.torch_compile.model import Run, Shape, Trial
from tidegate.core.model import Value


class Row(Value):
    """One shape in one process."""

    shape: str
    how: str
    """`eager`, or the mode and where its code came from: `default, cold`, `default, saved cache`."""
    per_second: float
    unit: str
    """`tokens` for shapes of two dimensions, else `samples`."""
    speedup: float | None
    """Eager's time to this one's, taken in turn in one process; None for eager."""
    p50_ms: float | None
    p99_ms: float | None
    memory_bytes: int
    gpu_peak_bytes: int | None
    start_seconds: float
    """From the process' start until every shape was answered once: the same in all rows of a process."""
    largest_difference: float
    errors: int


def rows(trial: Trial) -> tuple[Row, ...]:
    """Shape by shape, eager first."""
    runs = dict(_runs(trial))
    names = [shape.name for shape in trial.eager.shapes]
    return tuple(_row(trial, index, how, run) for index in range(len(names)) for how, run in runs.items())


def _runs(trial: Trial) -> Iterator[tuple[str, Run]]:
    yield "eager", trial.eager
    for compiled in trial.compiled:
        if compiled.cold is not None:
            yield f"{compiled.options.mode}, cold", compiled.cold
        yield f"{compiled.options.mode}, saved cache", compiled.cached


def _row(trial: Trial, index: int, how: str, run: Run) -> Row:
    measured = run.shapes[index]
    tokens = _tokens(trial.subject.shapes[index] if trial.subject.shapes else ())
    return Row(
        shape=measured.name,
        how=how,
        per_second=measured.samples_per_second * (tokens or 1),
        unit="tokens" if tokens else "samples",
        speedup=measured.speedup,
        p50_ms=measured.p50_ms,
        p99_ms=measured.p99_ms,
        memory_bytes=run.memory_bytes,
        gpu_peak_bytes=run.gpu_peak_bytes,
        start_seconds=run.seconds["ready"],
        largest_difference=run.agreement.largest_difference,
        errors=measured.errors,
    )


def _tokens(shape: Shape) -> int | None:
    """Tokens in one sample: of shapes that are batch and length."""
    return shape[1] if len(shape) == 2 else None
