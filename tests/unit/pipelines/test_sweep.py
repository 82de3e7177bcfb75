"""Which `max-num-seqs` keeps a latency budget: intervals, search, what is kept, and what is said of it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import comb
from pathlib import Path

import pytest
from fakes.delivery.loads import FakeScratch

from gates.evidence.request_record import RequestRecord
from pipelines.adapters.load.swept import SweepFile
from pipelines.load.model import LoadOrder, LoadRequest, LoadShape, SweepBlock
from pipelines.load.requests import plain_requests
from pipelines.load.sweep import (
    COVERAGE,
    FEWEST_BLOCKS,
    Kept,
    LatencyBudget,
    MedianRange,
    SweepResult,
    judged,
    next_value,
)
from pipelines.run.sweep import Sweep, SweepPlan, SweepTools
from rollouts.model import Engine
from tidegate.cli.commands.engine_sweep import lines_of, proposed
from tidegate.core.errors import OutsideError
from tidegate.core.spec import SpecError
from tidegate.testing import an_engine

pytestmark = pytest.mark.long

REQUESTS = plain_requests(["a", "b"], 10)


def test_the_interval_is_the_narrowest_of_ranks_that_encloses_the_median_so_surely() -> None:
    for count in range(FEWEST_BLOCKS, 60):
        found = MedianRange.of([float(value) for value in range(count)])
        rank = int(found.low) + 1
        assert found.high == count - rank
        outside = [2 * sum(comb(count, below) for below in range(k)) / 2**count for k in (rank, rank + 1)]
        assert outside[0] <= 1 - COVERAGE < outside[1]


def test_a_block_less_would_not_do() -> None:
    assert 2 * 0.5 ** (FEWEST_BLOCKS - 1) > 1 - COVERAGE >= 2 * 0.5**FEWEST_BLOCKS


@pytest.mark.parametrize("limit", range(1, 65))
def test_the_search_finds_every_limit_within_a_quarter(limit: int) -> None:
    measured: dict[int, Kept] = {}
    while value := next_value(measured, 1, 64):
        assert value not in measured
        measured[value] = Kept.YES if value <= limit else Kept.NO
    best = max(value for value, kept in measured.items() if kept is Kept.YES)
    assert best <= limit <= best * 1.25 + 1
    assert len(measured) <= 10


def test_a_search_whose_smallest_value_is_too_much_ends_with_it() -> None:
    assert next_value({4: Kept.NO}, 4, 64) is None


def test_what_is_unclear_ends_no_climb_and_is_not_passed_when_looking_between() -> None:
    assert next_value({4: Kept.UNCLEAR}, 4, 64) == 8
    assert next_value({4: Kept.UNCLEAR, 8: Kept.NO}, 4, 64) is None
    assert next_value({4: Kept.YES, 8: Kept.UNCLEAR, 16: Kept.NO}, 4, 64) == 6
    assert next_value({4: Kept.UNCLEAR, 8: Kept.YES, 16: Kept.NO}, 4, 64) == 12


def test_a_search_measures_the_largest_value_itself() -> None:
    assert next_value({8: Kept.YES}, 8, 12) == 12
    assert next_value({8: Kept.YES, 12: Kept.YES}, 8, 12) is None


def blocks(itl: Sequence[float | None], *, failed: int = 0) -> list[SweepBlock]:
    return [
        SweepBlock(max_num_seqs=8, requests=50, failed=failed, tokens_per_second=100.0, ttft_p95=0.2, itl_p95=each)
        for each in itl
    ]


@pytest.mark.parametrize(
    ("itl", "failed", "keeps", "why"),
    [
        ([0.04, 0.041, 0.042, 0.043, 0.044, 0.045], 0, Kept.YES, ""),
        ([0.04, 0.041, 0.042, 0.043, 0.044, 0.055], 0, Kept.UNCLEAR, "time between tokens p95 up to 55 ms"),
        ([0.06, 0.061, 0.062, 0.063, 0.064, 0.065], 0, Kept.NO, "time between tokens p95 62 ms"),
        ([0.04, 0.041, 0.042, 0.043, 0.044, None], 0, Kept.NO, "a block without any time between tokens"),
        ([0.04, 0.041, 0.042, 0.043, 0.044, 0.045], 2, Kept.NO, "12 of 300 requests failed"),
    ],
)
def test_a_budget_is_kept_when_the_whole_interval_is_within_it(
    itl: Sequence[float | None], failed: int, keeps: Kept, why: str
) -> None:
    point = judged(blocks(itl, failed=failed), LatencyBudget(ttft_p95=0.3, itl_p95=0.05))
    assert (point.keeps, point.why) == (keeps, why)


def test_a_broken_ttft_is_not_hidden_by_a_time_between_tokens_that_is_unclear() -> None:
    unclear = blocks([0.04, 0.041, 0.042, 0.043, 0.044, 0.055])
    assert judged(unclear, LatencyBudget(ttft_p95=0.1, itl_p95=0.05)).why == "TTFT p95 200 ms"


def test_a_budget_has_at_least_one_limit() -> None:
    with pytest.raises(ValueError, match="a budget for TTFT"):
        LatencyBudget()


@dataclass
class SlowingLoads:
    """An engine of 10 ms a token and 1 ms more for each request in flight."""

    folder: Path
    orders: list[LoadOrder] = field(default_factory=list)
    gone_after: int = 10_000
    random: random.Random = field(default_factory=lambda: random.Random(1))

    @asynccontextmanager
    async def open(self, name: str, requests: Sequence[LoadRequest], *, processes: int) -> AsyncIterator[SlowingLoads]:
        assert requests == REQUESTS
        yield self

    async def block(self, order: LoadOrder) -> Sequence[RequestRecord]:
        if len(self.orders) >= self.gone_after:
            raise OutsideError("a process of the load ended by itself")
        self.orders.append(order)
        assert order.concurrency is not None
        itl = (0.01 + 0.001 * order.concurrency) * self.random.uniform(0.97, 1.03)
        count = round(order.seconds / (itl * 10))
        return [
            RequestRecord(
                started=1000 + number * itl * 10,
                region=order.region,
                role=order.role,
                version=order.version,
                status=200,
                ok=True,
                ttft_seconds=itl * 5,
                itl_mean_seconds=itl,
                duration_seconds=itl * 10,
                output_tokens=10,
            )
            for number in range(count)
            for _ in range(order.concurrency)
        ]


class Machine:
    """Where sweeps run one after the other."""

    def __init__(self, folder: Path) -> None:
        self.loads, self.scratch = SlowingLoads(folder), FakeScratch()
        self.file = SweepFile(folder / "sweeps" / "tiny-1.jsonl")
        self.prepared: list[int] = []
        self.said: list[str] = []

    async def sweep(self, itl: float, *, lowest: int = 1, highest: int = 64) -> SweepResult:
        plan = SweepPlan(
            version="models:/tiny/1",
            model="tiny",
            requests=REQUESTS,
            budget=LatencyBudget(itl_p95=itl),
            lowest=lowest,
            highest=highest,
            blocks=6,
            seconds=10,
            shape=LoadShape.STEADY,
        )
        tools = SweepTools(self.scratch, self.loads, self.file)
        return await Sweep(plan, self._engine, tools, self.said.append).run()

    async def _engine(self, value: int) -> Engine:
        self.prepared.append(value)
        return an_engine("1")


async def test_the_most_productive_value_within_the_budget_is_proposed(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    result = await machine.sweep(0.0301)
    # 10 ms and 1 ms more each, 3 % of noise: 19 keeps it surely, 21 surely does not.
    assert result.proposal is not None and 16 <= result.proposal.max_num_seqs <= 19
    assert [point.max_num_seqs for point in result.points] == sorted(machine.prepared)
    assert machine.scratch.running == 0
    assert {order.concurrency for order in machine.loads.orders} == set(machine.prepared)
    assert proposed(result) == f"max-num-seqs: {result.proposal.max_num_seqs} serves most within the budget"
    assert len(list(lines_of(result))) == len(result.points) + 4


async def test_the_warm_up_is_half_as_long_and_does_not_count(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (point,) = (await machine.sweep(1.0, highest=1)).points
    assert [order.seconds for order in machine.loads.orders] == [5.0, *[10.0] * 6]
    assert point.blocks == 6


async def test_another_budget_is_judged_by_what_was_measured(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    await machine.sweep(0.03)
    brought, prepared = len(machine.loads.orders), len(machine.prepared)
    again = await machine.sweep(0.03)
    narrower = await machine.sweep(0.0135)
    assert again.proposal is not None and narrower.proposal is not None
    assert narrower.proposal.max_num_seqs < again.proposal.max_num_seqs
    # Between 2 and 4 nobody had looked.
    assert machine.prepared[prepared:] == [3]
    assert len(machine.loads.orders) - brought == 7


async def test_a_sweep_that_was_stopped_goes_on_with_the_next_block(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.loads.gone_after = 11
    with pytest.raises(OutsideError):
        await machine.sweep(0.03, highest=2)
    # Warm-up and six blocks of 1, warm-up and three of 2.
    assert (len(machine.file.blocks()), machine.scratch.running) == (9, 0)
    machine.loads.gone_after = 10_000
    result = await machine.sweep(0.03, highest=2)
    assert [point.blocks for point in result.points] == [6, 6]
    assert [order.seed for order in machine.loads.orders[11:]] == [0, 4, 5, 6]


async def test_a_budget_that_no_value_keeps_is_said(tmp_path: Path) -> None:
    result = await Machine(tmp_path).sweep(0.005)
    assert result.proposal is None
    assert proposed(result) == "no value keeps the budget: 1 does not already (time between tokens p95 11 ms)"


async def test_a_value_that_is_unclear_asks_for_more_blocks(tmp_path: Path) -> None:
    result = await Machine(tmp_path).sweep(0.011, highest=1)
    assert (result.proposal, result.points[0].keeps) == (None, Kept.UNCLEAR)
    assert proposed(result) == "no value is sure to keep the budget; more --blocks tell of 1"


def test_a_block_whose_write_was_cut_off_is_none_and_spoils_no_other(tmp_path: Path) -> None:
    file = SweepFile(tmp_path / "tiny.jsonl")
    first, second = blocks([0.04, 0.05])
    file.add(first)
    with file.path.open("a") as cut:
        cut.write('{"max_num_seqs": 8, "req')
    assert file.blocks() == [first]
    file.add(second)
    assert file.blocks() == [first, second]


def test_a_file_that_holds_something_else_is_named_with_its_line(tmp_path: Path) -> None:
    file = SweepFile(tmp_path / "tiny.jsonl")
    file.add(blocks([0.04])[0])
    file.path.write_text(file.path.read_text() + "{}\n")
    with pytest.raises(SpecError, match=r"tiny\.jsonl:2: found something else; expected a block"):
        file.blocks()
