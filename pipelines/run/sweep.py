"""Measures engines of one model version that differ in `max-num-seqs`, until it is known which keeps a budget."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from pipelines.load.model import CONCURRENCY_OF_A_PROCESS, LoadOrder, LoadRequest, LoadShape, SweepBlock
from pipelines.load.sweep import (
    LatencyBudget,
    SweepPoint,
    SweepResult,
    block_of,
    judged,
    next_value,
)
from pipelines.ports import LoadGenerator, LoadGenerators, ScratchEngines, SweptBlocks
from rollouts.model import Engine
from tidegate.core.durations import duration

PLACE = "sweep"
"""Where engines run that serve nobody, for logs and records."""
WARM_UP = 0.5
"""Of a block's length: load that each engine gets first, and that is not counted. First requests compile kernels."""


@dataclass(frozen=True)
class SweepPlan:
    """What is asked."""

    version: str
    """`models:/NAME/VERSION`."""
    model: str
    """What requests carry in their `model` field."""
    requests: Sequence[LoadRequest]
    budget: LatencyBudget
    lowest: int
    highest: int
    blocks: int
    """Of each value."""
    seconds: float
    """Of a block."""
    shape: LoadShape


@dataclass(frozen=True)
class SweepTools:
    """What it works with."""

    scratch: ScratchEngines
    loads: LoadGenerators
    kept: SweptBlocks


@dataclass(frozen=True)
class Sweep:
    """One sweep on this machine; a value has as many requests in flight as its engine takes at once."""

    plan: SweepPlan
    engine_of: Callable[[int], Awaitable[Engine]]
    """The version's engine with that `max-num-seqs`."""
    tools: SweepTools
    tell: Callable[[str], None]

    async def run(self) -> SweepResult:
        """Measure value after value; blocks that are kept already are not brought again.

        Raises:
            TidegateError: an engine is not built or does not start, or what generates the load is gone. What was
                measured is kept.
        """
        plan, points = self.plan, dict[int, SweepPoint]()
        while value := next_value({at: point.keeps for at, point in points.items()}, plan.lowest, plan.highest):
            points[value] = judged(await self._blocks(value), plan.budget)
            self.tell(_words(points[value]))
        return SweepResult(
            version=plan.version,
            budget=plan.budget,
            measurements=str(self.tools.kept.path),
            points=[points[value] for value in sorted(points)],
        )

    async def _blocks(self, value: int) -> Sequence[SweepBlock]:
        plan, blocks = self.plan, [block for block in self.tools.kept.blocks() if block.max_num_seqs == value]
        if len(blocks) >= plan.blocks:
            # All of them, and not those that suit: more blocks than are asked for say more.
            return blocks
        engine = await self.engine_of(value)
        processes = -(-round(value * plan.shape.peak) // CONCURRENCY_OF_A_PROCESS)
        async with (
            self.tools.scratch.start(PLACE, engine) as running,
            self.tools.loads.open(f"{PLACE}.{value}", plan.requests, processes=processes) as load,
        ):
            await load.block(self._order(running.url, engine, value, 0, WARM_UP))
            while len(blocks) < plan.blocks:
                blocks.append(await self._block(load, running.url, engine, value, len(blocks) + 1))
        return blocks

    async def _block(self, load: LoadGenerator, url: str, engine: Engine, value: int, number: int) -> SweepBlock:
        block = block_of(value, await load.block(self._order(url, engine, value, number)))
        self.tools.kept.add(block)
        late = "" if block.ttft_p95 is None else f", TTFT p95 {duration(block.ttft_p95)}"
        self.tell(
            f"max-num-seqs {value}: block {number} of {self.plan.blocks}, {block.tokens_per_second:,.0f} tokens/s{late}"
        )
        return block

    def _order(self, url: str, engine: Engine, value: int, number: int, part: float = 1.0) -> LoadOrder:
        """The same requests for the same block of every value."""
        return LoadOrder(
            url=url,
            model=self.plan.model,
            region=PLACE,
            role="stable",
            version=engine.version,
            shape=self.plan.shape,
            seconds=self.plan.seconds * part,
            concurrency=value,
            seed=number,
        )


def _words(point: SweepPoint) -> str:
    said = f"{point.keeps}, {point.why}" if point.why else str(point.keeps)
    return f"max-num-seqs {point.max_num_seqs}: keeps the budget: {said}"
