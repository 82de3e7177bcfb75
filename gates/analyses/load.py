"""Asks whether the canary serves fewer tokens a second than stable under the same load, or dearer ones.

Evidence is a block: both arms got the same requests by the same shape, and a coin decided which had them first. So
when neither arm is slower, swapping them within a block changes nothing, whatever else the machines do meanwhile.
Requests within a block wait for each other and are no independent evidence: a block is one draw, of one log ratio.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import scipy
from pydantic import Field

from gates.analyses.base import Conditions, ExpectedFlow, MetricTest, Settings, StageUse, TestedGate
from gates.evidence.batch import ArmLoad, ArmName, Batch, LoadBlock, Source
from gates.model import Sample
from gates.stats.e_process import Array
from gates.stats.paired import LIMIT, PairedTimesProcess
from gates.traffic import MOST_PAIRS, ArrivalRates, Assumptions, EvenDraws, Flow
from tidegate.core.model import SpecConflict, SpecModel
from tidegate.core.units import Percent

ASSUMED_SPREAD = 0.05
"""Of a block's log ratio, while there is none."""


class ThroughputGate(SpecModel):
    """Under the same load the canary may serve `max_drop` fewer tokens a second than stable at most."""

    max_drop: Percent = Field(default=0.1, gt=0, lt=0.9, validate_default=False)
    """Of stable's output tokens a second and engine. The gate passes once the canary is proven to be within it."""
    tolerance: Percent = Field(default=0.02, ge=0, validate_default=False)
    """The gate fails once the canary is proven to serve fewer by more than this."""
    min_blocks: Sample = 4
    """Before a pass, however clear the evidence."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """What is tolerated must be allowed."""
        if self.tolerance >= self.max_drop:
            yield SpecConflict(("tolerance",), f"{self.tolerance:.0%}", f"less than max_drop, {self.max_drop:.0%}")


class CostGate(SpecModel):
    """Under the same load a token of the canary may cost `max_increase` more than one of stable at most."""

    max_increase: Percent = Field(default=0.1, gt=0, validate_default=False)
    """Of what stable's tokens cost, by `cost.per_engine_hour`. The gate passes once the canary is proven to be within
    it."""
    tolerance: Percent = Field(default=0.02, ge=0, validate_default=False)
    """The gate fails once the canary is proven to be dearer by more than this."""
    min_blocks: Sample = 4
    """Before a pass, however clear the evidence."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """What is tolerated must be allowed."""
        if self.tolerance >= self.max_increase:
            expected = f"less than max_increase, {self.max_increase:.0%}"
            yield SpecConflict(("tolerance",), f"{self.tolerance:.0%}", expected)


def as_rate(tokens_per_second: float) -> str:
    """A throughput as a person reads it: `1,204` or `8.31`."""
    return f"{tokens_per_second:,.0f}" if tokens_per_second >= 100 else f"{tokens_per_second:.3g}"


class BlockTest(MetricTest):
    """What a token takes on the canary, over what it takes on stable, block by block."""

    process: PairedTimesProcess
    sample = "blocks"

    def __init__(self, kind: str, *, max_increase: float, tolerance: float, needed: int) -> None:
        """Shares of what a token takes on stable: time, or money."""
        super().__init__(kind, needed=needed)
        self._max_increase = max_increase
        self.process = PairedTimesProcess(max_increase=max_increase, tolerance=tolerance, assumed_spread=ASSUMED_SPREAD)
        self._seen: list[LoadBlock] = []

    @abstractmethod
    def takes(self, load: ArmLoad) -> float | None:
        """What a token takes; infinity when none came, None when it is not known."""

    def take(self, batch: Batch, seconds: float) -> None:
        """As `MetricTest`; a block in which stable served nothing says nothing of the canary."""
        self.missing = batch.missing.get(self.kind, "")
        telling = [block for block in batch.blocks if block.stable.output_tokens]
        ratios = [ratio for block in telling if (ratio := self._log_ratio(block)) is not None]
        self._seen += telling
        if ratios:
            self.process.feed(np.asarray(ratios), seconds)

    def restart(self) -> None:
        """As `MetricTest`."""
        self._seen = []
        self.process.restart_acceptance()

    @property
    def seen(self) -> int:
        """Blocks since the last restart."""
        return len(self._seen)

    def totals(self, arm: ArmName) -> ArmLoad:
        """All blocks of one arm together."""
        loads: list[ArmLoad] = [getattr(block, arm) for block in self._seen]
        return loads[0].model_copy(
            update={
                "requests": sum(load.requests for load in loads),
                "failed": sum(load.failed for load in loads),
                "output_tokens": sum(load.output_tokens for load in loads),
                "seconds": sum(load.seconds for load in loads),
            }
        )

    def _log_ratio(self, block: LoadBlock) -> float | None:
        canary, stable = self.takes(block.canary), self.takes(block.stable)
        if canary is None or stable is None:
            return None
        return LIMIT if math.isinf(canary) else math.log(canary / stable)


class ThroughputTest(BlockTest):
    """Seconds a token and engine, which are told as tokens a second."""

    worse = "that it serves fewer than tolerated"

    def __init__(self, gate: ThroughputGate) -> None:
        """A drop by a share d is 1 / (1 - d) times the time for a token."""
        super().__init__(
            "throughput",
            max_increase=_of_drop(gate.max_drop),
            tolerance=_of_drop(gate.tolerance),
            needed=gate.min_blocks,
        )
        self._gate = gate

    def takes(self, load: ArmLoad) -> float:
        """Seconds of one engine."""
        return 1 / load.tokens_per_second if load.output_tokens else math.inf

    def describe(self) -> str:
        """As `MetricTest`."""
        if not self._seen:
            return self.missing or "no block of load in which stable served anything"
        canary, stable = (self.totals(arm).tokens_per_second for arm in (ArmName.CANARY, ArmName.STABLE))
        return (
            f"canary serves {as_rate(canary)} tokens/s an engine against {as_rate(stable)} on stable "
            f"({canary / stable - 1:+.1%}, allowed -{self._gate.max_drop:.0%})"
        )

    def numbers(self) -> Mapping[str, float]:
        """As `MetricTest`."""
        found = {"blocks": float(self.seen)}
        if self._seen:
            found |= {f"{arm}_tokens_per_second": self.totals(arm).tokens_per_second for arm in ArmName}
        return found


class CostTest(BlockTest):
    """Money a token."""

    worse = "that it is dearer than tolerated"
    fine = "that it costs no more than the margin allows"

    def __init__(self, gate: CostGate) -> None:
        """Settings as the spec has them."""
        super().__init__("cost", max_increase=gate.max_increase, tolerance=gate.tolerance, needed=gate.min_blocks)

    def takes(self, load: ArmLoad) -> float | None:
        """Money, in whatever currency the price was told."""
        if load.cost is None:
            return None
        return load.cost / load.output_tokens if load.output_tokens else math.inf

    @property
    def seen(self) -> int:
        """As `BlockTest`, of blocks with a price."""
        return len([block for block in self._seen if None not in (block.stable.cost, block.canary.cost)])

    def describe(self) -> str:
        """As `MetricTest`."""
        if not self.seen:
            return self.missing or "no block of load with a price in which stable served anything"
        canary, stable = (self._of_a_million(arm) for arm in (ArmName.CANARY, ArmName.STABLE))
        change = f"{canary / stable - 1:+.1%}" if math.isfinite(canary) else "it serves none"
        return (
            f"a million tokens cost {canary:,.4g} on the canary against {stable:,.4g} on stable "
            f"({change}, allowed {self._max_increase:+.0%})"
        )

    def numbers(self) -> Mapping[str, float]:
        """As `MetricTest`."""
        found = {"blocks": float(self.seen)}
        if self.seen:
            costs = {f"{arm}_cost_per_million_tokens": self._of_a_million(arm) for arm in ArmName}
            found |= {name: cost for name, cost in costs.items() if math.isfinite(cost)}
        return found

    def _of_a_million(self, arm: ArmName) -> float:
        return 1e6 * (self.takes(self.totals(arm)) or math.nan)


def _of_drop(share: float) -> float:
    """How much more time a token takes when so much of the throughput is gone."""
    return 1 / (1 - share) - 1


def expected_blocks(
    max_increase: float, tolerance: float, arrivals: ArrivalRates, log_worse: Array, assumed: Assumptions
) -> Flow:
    """The log ratio of each block is by chance, and `log_worse` on top."""
    process = PairedTimesProcess(
        max_increase=max_increase, tolerance=tolerance, assumed_spread=ASSUMED_SPREAD, leading=log_worse.shape
    )
    draws = EvenDraws(arrivals.canary)

    def feed(seconds: float) -> None:
        first, _ = draws.after(seconds)
        process.feed(log_worse[:, None] + assumed.block_spread * scipy.special.ndtri(first), seconds)

    return Flow(process, feed, most=MOST_PAIRS)


def _expected_throughput(gate: ThroughputGate, arrivals: ArrivalRates, worse: Array, assumed: Assumptions) -> Flow:
    margins = _of_drop(gate.max_drop), _of_drop(gate.tolerance)
    return expected_blocks(*margins, arrivals, -np.log1p(-worse), assumed)


def _expected_cost(gate: CostGate, arrivals: ArrivalRates, worse: Array, assumed: Assumptions) -> Flow:
    return expected_blocks(gate.max_increase, gate.tolerance, arrivals, np.log1p(worse), assumed)


class LoadKind(TestedGate[Settings]):
    """A kind that blocks of load answer."""

    usual_sources = ("load",)
    from_batches = True
    sample = "min_blocks"


class ThroughputKind(LoadKind[ThroughputGate]):
    """How many tokens a second the canary serves under the same load."""

    name = "throughput"
    spec = settings = ThroughputGate
    stages = (StageUse("load", ("load",), by_default=True),)
    scale = "percent"
    margin = ("max_drop", 0.5)

    def tests(
        self, settings: ThroughputGate, source: Source, conditions: Conditions
    ) -> Iterator[tuple[float, MetricTest]]:
        """One, over blocks."""
        _ = source, conditions
        yield 1, ThroughputTest(settings)

    def flows(self, settings: ThroughputGate, *, paired: bool, temper: bool) -> Iterator[ExpectedFlow]:
        """As `TestedGate`."""
        _ = paired, temper
        yield partial(_expected_throughput, settings)


class CostKind(LoadKind[CostGate]):
    """What the canary's tokens cost under the same load."""

    name = "cost"
    spec = settings = CostGate
    stages = (StageUse("load", ("load",)),)
    scale = "cost"
    margin = ("max_increase", 0.5)

    def tests(self, settings: CostGate, source: Source, conditions: Conditions) -> Iterator[tuple[float, MetricTest]]:
        """One, over blocks with a price."""
        _ = source, conditions
        yield 1, CostTest(settings)

    def flows(self, settings: CostGate, *, paired: bool, temper: bool) -> Iterator[ExpectedFlow]:
        """As `TestedGate`."""
        _ = paired, temper
        yield partial(_expected_cost, settings)
