"""The stage `load` of a delivery's spec: which load both versions get, and where."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Literal

from pydantic import Field

from pipelines.load import CONCURRENCY_OF_A_PROCESS, RATE_OF_A_PROCESS, LoadShape
from tidegate.core.model import SpecConflict, SpecModel
from tidegate.core.units import Duration, format_duration

USUAL_CONCURRENCY = 8
SHORTEST_BLOCK = timedelta(seconds=5)
"""Locust moves along a shape once a second."""
TAIL_SECONDS = 3.0
"""That a block takes beyond its length, as planning expects: Locust starts, and the last requests end."""


class LoadSettings(SpecModel):
    """Of the stage but for its gates."""

    arms: Literal["serving"] | None = None
    """The canary, which has no users yet, and the region's own stable: its users feel the load, so that it is said."""
    concurrency: int | None = Field(default=None, ge=1, le=100_000)
    """Requests in flight on each engine: who has an answer asks again. 8 where no rate is said either."""
    requests_per_second: float | None = Field(default=None, gt=0, le=1_000_000)
    """On each engine instead: arrivals are Poisson and wait for nobody."""
    shape: LoadShape = LoadShape.STEADY
    block: Duration = Field(default=timedelta(seconds=20), ge=SHORTEST_BLOCK)
    """Load on one arm, until the other one has its turn."""
    prompts: Path | None = None
    """One a line; those of `traffic.prompts`, or of the golden set, where no file is named."""
    lengths: Path | None = None
    """What an engine of production said at `/metrics`: prompts and answers get the lengths that it counted."""
    max_tokens: int = Field(default=32, ge=1, le=100_000)
    """Of an answer; without meaning next to `lengths`, which say it for each."""
    within: Duration = timedelta(minutes=30)

    @property
    def block_seconds(self) -> float:
        """Of a block on both arms, as planning expects."""
        return 2 * (self.block.total_seconds() + TAIL_SECONDS)

    def load_of(self, engines: int) -> tuple[int | None, float | None]:
        """Requests in flight, or requests a second, of an arm of so many engines."""
        if self.requests_per_second:
            return None, self.requests_per_second * engines
        return (self.concurrency or USUAL_CONCURRENCY) * engines, None

    def processes_of(self, engines: int) -> int:
        """Processes for an arm of so many engines: as many as the load's peak needs."""
        concurrency, rate = self.load_of(engines)
        peak = self.shape.peak
        needed = (rate * peak / RATE_OF_A_PROCESS) if rate else (concurrency or 1) * peak / CONCURRENCY_OF_A_PROCESS
        return max(math.ceil(needed), 1)


def load_conflicts(load: LoadSettings, *, has_prompts: bool, in_workflow: bool) -> Iterator[SpecConflict]:
    """Two loads, none to send, blocks that do not fit, users who would feel it although nobody said that they may."""
    if load.concurrency and load.requests_per_second:
        expected = "one of concurrency, requests_per_second"
        yield SpecConflict(("requests_per_second",), "a rate next to a concurrency", expected)
    if load.arms is None:
        yield SpecConflict(("arms",), "nothing", "`arms: serving`, since users of the region's stable feel the load")
    if not load.prompts and not has_prompts:
        yield SpecConflict((), "no prompts to send", "prompts here, or at traffic.prompts")
    if load.block_seconds > load.within.total_seconds():
        longest = f"a block on both arms within `within`, which is {format_duration(load.within)}"
        yield SpecConflict(("block",), format_duration(load.block), longest)
    if in_workflow:
        found = "a load stage in a workflow, whose image has no Locust"
        yield SpecConflict((), found, "no `workflow`: `tidegate deliver` from a machine with `tidegate[load]`")
