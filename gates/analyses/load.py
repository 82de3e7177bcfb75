"""Asks whether the canary serves fewer tokens a second than stable under the same load, or dearer ones.

Evidence is a block: both arms got the same requests by the same shape, and a coin decided which had them first. So
when neither arm is slower, swapping them within a block changes nothing, whatever else the machines do meanwhile.
Requests within a block wait for each other and are no independent evidence: a block is one draw, of one log ratio.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np
import scipy
from pydantic import Field

from gates.analyses.base import BOTH, Conditions, MetricTest, StageUse, TestedGate
from gates.evidence.batch import ArmLoad, ArmName, Batch, LoadBlock, Source
from gates.model import Sample
from gates.stats.e_process import Array
from gates.stats.paired import LIMIT, PairedTimesProcess
from gates.traffic import ArrivalRates, Assumptions, Flow, expected_draws
from tidegate.core.units import Percent

ASSUMED_SPREAD = 0.05
"""Of a block's log ratio, while there is none."""


class LoadGate(TestedGate):
    """A kind that blocks of load answer."""

    usual_sources = ("load",)
    from_batches = True
    least = "min_blocks"
    test: ClassVar[type[BlockTest]]

    @property
    @abstractmethod
    def margins(self) -> tuple[float, float]:
        """By how much more a token may take, and how much more is tolerated; shares of stable's."""

    @abstractmethod
    def log_worse(self, worse: Array) -> Array:
        """Of canaries that are worse by that share, ln of what a token takes on them over stable's."""

    def tests(self, source: Source, conditions: Conditions) -> Iterator[tuple[float, MetricTest]]:
        _ = source, conditions
        yield 1, self.test(self)

    def flows(
        self, arrivals: ArrivalRates, worse: Array, assumed: Assumptions, *, paired: bool, temper: bool
    ) -> Iterator[Flow]:
        """The log ratio of each block is by chance, and what is worse on top."""
        _ = paired, temper
        log_worse = self.log_worse(worse)[:, None]
        yield expected_draws(
            self.process(worse.shape),
            arrivals,
            lambda first, _: log_worse + assumed.block_spread * scipy.special.ndtri(first),
        )

    def process(self, leading: tuple[int, ...] = ()) -> PairedTimesProcess:
        """What adds up the evidence."""
        most, tolerated = self.margins
        return PairedTimesProcess(
            max_increase=most, tolerance=tolerated, assumed_spread=ASSUMED_SPREAD, leading=leading
        )


class BlockTest(MetricTest):
    """What a token takes on the canary, over what it takes on stable, block by block."""

    process: PairedTimesProcess
    sample = "blocks"

    def __init__(self, gate: LoadGate) -> None:
        super().__init__(gate.name, needed=getattr(gate, gate.least))
        assert gate.margin is not None, "a kind of load has a margin"
        self._margin: float = getattr(gate, gate.margin)
        self.process = gate.process()

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

    def forget(self) -> None:
        self._seen: list[LoadBlock] = []

    @property
    def seen(self) -> int:
        return len(self._seen)

    def total(self, arm: ArmName) -> ArmLoad:
        """All blocks of one arm together."""
        loads: list[ArmLoad] = [getattr(block, arm) for block in self._seen]
        added = ("requests", "failed", "output_tokens", "seconds")
        return loads[0].model_copy(update={each: sum(getattr(load, each) for load in loads) for each in added})

    def _log_ratio(self, block: LoadBlock) -> float | None:
        canary, stable = self.takes(block.canary), self.takes(block.stable)
        if canary is None or stable is None:
            return None
        return LIMIT if math.isinf(canary) else math.log(canary / stable)


class ThroughputTest(BlockTest):
    """Seconds a token and engine, which are told as tokens a second."""

    worse = "that it serves fewer than tolerated"

    def takes(self, load: ArmLoad) -> float:
        return 1 / load.tokens_per_second if load.output_tokens else math.inf

    def describe(self) -> str:
        if not self._seen:
            return self.missing or "no block of load in which stable served anything"
        canary, stable = (self.total(arm).tokens_per_second for arm in BOTH)
        return (
            f"canary serves {as_rate(canary)} tokens/s an engine against {as_rate(stable)} on stable "
            f"({canary / stable - 1:+.1%}, allowed -{self._margin:.0%})"
        )

    def numbers(self) -> Mapping[str, float]:
        rates = {f"{arm}_tokens_per_second": self.total(arm).tokens_per_second for arm in ArmName if self._seen}
        return {"blocks": float(self.seen), **rates}


def as_rate(tokens_per_second: float) -> str:
    """A throughput as a person reads it: `1,204` or `8.31`."""
    return f"{tokens_per_second:,.0f}" if tokens_per_second >= 100 else f"{tokens_per_second:.3g}"


class CostTest(BlockTest):
    """Money a token, in whatever currency the price was told."""

    worse = "that it is dearer than tolerated"
    fine = "that it costs no more than the margin allows"

    def takes(self, load: ArmLoad) -> float | None:
        if load.cost is None:
            return None
        return load.cost / load.output_tokens if load.output_tokens else math.inf

    @property
    def seen(self) -> int:
        """As `MetricTest`, of blocks with a price."""
        return len([block for block in self._seen if None not in (block.stable.cost, block.canary.cost)])

    def describe(self) -> str:
        if not self.seen:
            return self.missing or "no block of load with a price in which stable served anything"
        canary, stable = (self._of_a_million(arm) for arm in BOTH)
        change = f"{canary / stable - 1:+.1%}" if math.isfinite(canary) else "it serves none"
        return (
            f"a million tokens cost {canary:,.4g} on the canary against {stable:,.4g} on stable "
            f"({change}, allowed {self._margin:+.0%})"
        )

    def numbers(self) -> Mapping[str, float]:
        costs = {f"{arm}_cost_per_million_tokens": self._of_a_million(arm) for arm in ArmName if self.seen}
        return {"blocks": float(self.seen), **{name: cost for name, cost in costs.items() if math.isfinite(cost)}}

    def _of_a_million(self, arm: ArmName) -> float:
        return 1e6 * (self.takes(self.total(arm)) or math.nan)


class ThroughputGate(LoadGate):
    """Under the same load the canary may serve `max_drop` fewer tokens a second than stable at most."""

    name = "throughput"
    stages = (StageUse("load", ("load",), by_default=True),)
    scale = "percent"
    margin = "max_drop"
    test = ThroughputTest

    max_drop: Percent = Field(default=0.1, gt=0, lt=0.9, validate_default=False)
    """Of stable's output tokens a second and engine. The gate passes once the canary is proven to be within it."""
    tolerance: Percent = Field(default=0.02, ge=0, validate_default=False)
    """The gate fails once the canary is proven to serve fewer by more than this."""
    min_blocks: Sample = 4
    """Before a pass, however clear the evidence."""

    @property
    def margins(self) -> tuple[float, float]:
        """A drop by a share d is 1 / (1 - d) times the time for a token."""
        return 1 / (1 - self.max_drop) - 1, 1 / (1 - self.tolerance) - 1

    def log_worse(self, worse: Array) -> Array:
        return np.asarray(-np.log1p(-worse))


class CostGate(LoadGate):
    """Under the same load a token of the canary may cost `max_increase` more than one of stable at most."""

    name = "cost"
    stages = (StageUse("load", ("load",)),)
    scale = "cost"
    margin = "max_increase"
    test = CostTest

    max_increase: Percent = Field(default=0.1, gt=0, validate_default=False)
    """Of what stable's tokens cost, by `cost.per_engine_hour`. The gate passes once the canary is proven to be within
    it."""
    tolerance: Percent = Field(default=0.02, ge=0, validate_default=False)
    """The gate fails once the canary is proven to be dearer by more than this."""
    min_blocks: Sample = 4
    """Before a pass, however clear the evidence."""

    @property
    def margins(self) -> tuple[float, float]:
        return self.max_increase, self.tolerance

    def log_worse(self, worse: Array) -> Array:
        return np.asarray(np.log1p(worse))
