"""Which `max-num-seqs` keeps a latency budget: blocks of load on one engine after the other, judged. Pure.

More requests at once make more tokens a second, and each request slower; past some value the budget breaks. So values
are doubled until one does not keep it, and the gap that is left is halved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from math import comb
from statistics import median
from typing import Self

from pydantic import Field, model_validator

from gates.evidence.request_record import RequestRecord
from pipelines.load.model import SweepBlock
from pipelines.load.results import Quantiles
from tidegate.core.durations import duration
from tidegate.core.model import Value

COVERAGE = 0.95
"""Of the interval of a median."""
FEWEST_BLOCKS = 6
"""With five, not even the smallest and the largest enclose the median so surely."""
FINEST = 4
"""The gap is not halved once it is a quarter of what keeps the budget: blocks are not that precise."""


class LatencyBudget(Value):
    """The longest times that 95 % of requests may take; seconds."""

    ttft_p95: float | None = Field(default=None, gt=0)
    itl_p95: float | None = Field(default=None, gt=0)
    """Of the mean time between tokens of each request."""

    @model_validator(mode="after")
    def _one_at_least(self) -> Self:
        if self.ttft_p95 is None and self.itl_p95 is None:
            raise ValueError("a budget for TTFT, for the time between tokens, or for both")
        return self


class MedianRange(Value):
    """The median of blocks, and where the true one lies."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """By ranks, which asks nothing of how blocks spread (the inverted sign test).

        The k-th smallest and the k-th largest enclose the median unless fewer than k blocks fall on one side of it,
        whose chance is twice a binomial tail. Blocks are taken as independent of each other.
        """
        ordered, count = sorted(values), len(values)
        rank, outside = 1, 2 * 0.5**count
        while rank < count // 2 and (wider := outside + 2 * comb(count, rank) * 0.5**count) <= 1 - COVERAGE:
            rank, outside = rank + 1, wider
        return cls(median=median(ordered), low=ordered[rank - 1], high=ordered[-rank])


class Kept(StrEnum):
    """What blocks say of a budget."""

    YES = "yes"
    NO = "no"
    UNCLEAR = "unclear"


class SweepPoint(Value):
    """One `max-num-seqs`, measured."""

    max_num_seqs: int
    blocks: int
    requests: int
    failed: int
    tokens_per_second: MedianRange
    ttft_p95: MedianRange | None
    itl_p95: MedianRange | None
    keeps: Kept
    why: str
    """Empty where the budget is kept."""


class SweepResult(Value):
    """All values that were measured, and what follows."""

    version: str
    """`models:/NAME/VERSION`."""
    budget: LatencyBudget
    measurements: str
    """The file in which blocks are kept."""
    points: Sequence[SweepPoint]
    """By `max_num_seqs`."""

    @property
    def proposal(self) -> SweepPoint | None:
        """The most productive value that keeps the budget; None when none does."""
        kept = [point for point in self.points if point.keeps is Kept.YES]
        return max(kept, key=lambda point: point.tokens_per_second.median, default=None)


def block_of(max_num_seqs: int, records: Sequence[RequestRecord]) -> SweepBlock:
    """What a block came to; times are of requests that were answered in full."""
    answered = [record for record in records if record.ok]
    span = max((record.ended for record in records), default=0.0) - min(
        (record.started for record in records), default=0.0
    )
    return SweepBlock(
        max_num_seqs=max_num_seqs,
        requests=len(records),
        failed=len(records) - len(answered),
        tokens_per_second=sum(record.output_tokens for record in answered) / max(span, 1e-3),
        ttft_p95=Quantiles.of(record.ttft_seconds for record in answered).p95,
        itl_p95=Quantiles.of(record.itl_mean_seconds for record in answered).p95,
    )


def judged(blocks: Sequence[SweepBlock], budget: LatencyBudget) -> SweepPoint:
    """What the blocks of one value say; at least `FEWEST_BLOCKS`."""
    ttft, itl = _range(block.ttft_p95 for block in blocks), _range(block.itl_p95 for block in blocks)
    requests, failed = sum(block.requests for block in blocks), sum(block.failed for block in blocks)
    keeps, why = Kept.YES, ""
    for name, found, limit in (("TTFT", ttft, budget.ttft_p95), ("time between tokens", itl, budget.itl_p95)):
        if limit is None or keeps is Kept.NO:
            continue
        if found is None:
            keeps, why = Kept.NO, f"a block without any {name}"
        elif found.low > limit:
            keeps, why = Kept.NO, f"{name} p95 {duration(found.median)}"
        elif found.high > limit:
            keeps, why = Kept.UNCLEAR, f"{name} p95 up to {duration(found.high)}"
    if failed:
        keeps, why = Kept.NO, f"{failed} of {requests} requests failed"
    return SweepPoint(
        max_num_seqs=blocks[0].max_num_seqs,
        blocks=len(blocks),
        requests=requests,
        failed=failed,
        tokens_per_second=MedianRange.of([block.tokens_per_second for block in blocks]),
        ttft_p95=ttft,
        itl_p95=itl,
        keeps=keeps,
        why=why,
    )


def _range(values: Iterable[float | None]) -> MedianRange | None:
    """None when a block has none."""
    known = list(values)
    found = [value for value in known if value is not None]
    return MedianRange.of(found) if len(found) == len(known) else None


def next_value(measured: Mapping[int, Kept], lowest: int, highest: int) -> int | None:
    """The `max-num-seqs` to measure now; None when nothing is left to learn.

    A value that is unclear ends no climb, because a noisy neighbour may have been there; it is no value to propose.
    """
    if lowest not in measured:
        return lowest
    broken = min((value for value, kept in measured.items() if kept is Kept.NO), default=None)
    if broken is None:
        top = max(measured)
        return min(2 * top, highest) if top < highest else None
    good = max((value for value, kept in measured.items() if kept is Kept.YES and value < broken), default=None)
    if good is None:
        return None
    upper = min(value for value, kept in measured.items() if kept is not Kept.YES and value > good)
    return (good + upper) // 2 if upper - good > max(good // FINEST, 1) else None
