"""A trial of a torch model as a table on the terminal."""

from __future__ import annotations

from rich.table import Table

from engine_images.torch_compile.compare import Row, rows
from engine_images.torch_compile.model import Trial
from tidegate.cli.console import PlainConsole
from tidegate.cli.engine_view import in_bytes

WIDTH = 120
"""Of a table that is not on a terminal."""


def show(trial: Trial) -> None:
    """Print the table, what it ran on, and what became of the caches."""
    console = PlainConsole(soft_wrap=False)
    if not console.is_terminal:
        console = PlainConsole(width=WIDTH)
    console.print(table(rows(trial)))
    machine = trial.eager.machine
    console.print(f"{machine.device}; torch {machine.torch}; {trial.subject.repeats} calls of each shape", style="dim")
    for compiled in trial.compiled:
        counters, saved = compiled.cached.counters, compiled.cold.saved_bytes if compiled.cold else None
        size = f" ({in_bytes(saved)})" if saved else ""
        console.print(
            f"{compiled.options.mode}: from the saved cache{size} {counters.graph_hits} graphs found, "
            f"{counters.graph_misses} compiled; {counters.kernels_built} kernels built",
            style="dim",
        )


def table(found: tuple[Row, ...]) -> Table:
    """One line for each shape and process."""
    gpu = any(row.gpu_peak_bytes is not None for row in found)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("shape", "how"):
        table.add_column(column, no_wrap=True)
    numbers = ("per second", "speedup", "p50 ms", "p99 ms", "memory", *(["GPU peak"] * gpu), "start s", "differs by")
    for column in (*numbers, "errors"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in found:
        table.add_row(*_cells(row, gpu=gpu))
    return table


def _cells(row: Row, *, gpu: bool) -> tuple[str, ...]:
    return (
        row.shape,
        row.how,
        f"{row.per_second:,.0f} {row.unit}" if row.per_second >= 10 else f"{row.per_second:.2f} {row.unit}",
        f"{row.speedup:.2f}" if row.speedup is not None else "-",
        f"{row.p50_ms:.1f}" if row.p50_ms is not None else "-",
        f"{row.p99_ms:.1f}" if row.p99_ms is not None else "-",
        in_bytes(row.memory_bytes),
        *([in_bytes(row.gpu_peak_bytes or 0)] * gpu),
        f"{row.start_seconds:.1f}",
        "-" if row.how == "eager" else f"{row.largest_difference:.1e}",
        str(row.errors),
    )
