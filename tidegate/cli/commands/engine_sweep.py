"""`tidegate engine sweep`: which `max-num-seqs` keeps a latency budget."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.load.sweep import Kept, MedianRange, SweepPoint, SweepResult
from tidegate.app.engines.sweep import SweepOptions, sweep_engine
from tidegate.cli.engine_images import aligned
from tidegate.cli.output import OutputForm, print_data, say
from tidegate.core.durations import duration
from tidegate.core.errors import ExitCode


def sweep(options: SweepOptions, *, output: OutputForm) -> int:
    """Print what was measured, and what follows."""
    result = sweep_engine(options)
    if output.is_data:
        proposal = result.proposal
        print_data({**result.model_dump(mode="json"), "proposal": proposal.max_num_seqs if proposal else None}, output)
    else:
        say(*lines_of(result))
    if result.proposal:
        return ExitCode.DELIVERED
    unclear = any(point.keeps is Kept.UNCLEAR for point in result.points)
    return ExitCode.INCONCLUSIVE if unclear else ExitCode.ROLLED_BACK


HEAD = ("max-num-seqs", "tokens/s", "TTFT p95", "time between tokens p95", "requests", "keeps the budget")


def lines_of(result: SweepResult) -> Iterator[str]:
    """The table, and the proposal, for a person."""
    yield from aligned([HEAD, *map(_row, result.points)])
    yield "median of blocks, and where it lies (95 %)"
    yield f"blocks are kept in {result.measurements}; remove it to measure again"
    yield proposed(result)


def proposed(result: SweepResult) -> str:
    """The last line."""
    best = result.proposal
    if best:
        return f"max-num-seqs: {best.max_num_seqs} serves most within the budget"
    unclear = [point for point in result.points if point.keeps is Kept.UNCLEAR]
    if unclear:
        return f"no value is sure to keep the budget; more --blocks tell of {unclear[0].max_num_seqs}"
    return f"no value keeps the budget: {result.points[0].max_num_seqs} does not already ({result.points[0].why})"


def _row(point: SweepPoint) -> tuple[str, ...]:
    tokens = point.tokens_per_second
    said = f"{point.keeps}: {point.why}" if point.why else str(point.keeps)
    return (
        str(point.max_num_seqs),
        f"{tokens.median:,.0f} ({tokens.low:,.0f} to {tokens.high:,.0f})",
        _times(point.ttft_p95),
        _times(point.itl_p95),
        f"{point.requests:,}",
        said,
    )


def _times(found: MedianRange | None) -> str:
    if found is None:
        return "none"
    return f"{duration(found.median)} ({duration(found.low)} to {duration(found.high)})"
