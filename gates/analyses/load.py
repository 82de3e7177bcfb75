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
from gates.evidence.batch import ArmLoad, ArmName, Batch, LoadBlock
from gates.model import Sample
from gates.stats.e_process import Array
from gates.stats.paired import LIMIT, PairedTimesProcess
from gates.traffic import Expected, Flow, expected_draws
from tidegate.core.units import Percent

ASSUMED_SPREAD = 0.05
"""Of a block's log ratio, while there is none."""


class LoadGate(TestedGate):
    """A kind that blocks of load answer: what a token takes, in time or money."""

    usual_sources = ("load",)
    from_batches = True
    least = "min_blocks"
    number: ClassVar[str]
    """What is told of an arm, and its name among the numbers."""
    nothing: ClassVar[str]
    worse: ClassVar[str]
    fine: ClassVar[str] = MetricTest.fine

    min_blocks: Sample = 4
    """Before a pass, however clear the evidence."""

    @abstractmethod
    def more(self, worse: float | Array) -> float | Array:
        """By how much more a token takes on a canary that is worse by that share."""

    @abstractmethod
    def takes(self, load: ArmLoad) -> float | None:
        """What a token takes; infinity when none came, None when it is not known."""

    @abstractmethod
    def told(self, load: ArmLoad) -> float:
        """Of all load of an arm, the number."""

    @abstractmethod
    def compare(self, canary: float, stable: float) -> str:
        """Both numbers in words."""

    def tests(self, conditions: Conditions) -> Iterator[tuple[float, MetricTest]]:
        _ = conditions
        yield 1, BlockTest(self)

    def flows(self, expected: Expected, worse: Array) -> Iterator[Flow]:
        """The log ratio of each block is by chance, and what is worse on top."""
        spread, log_worse = expected.assumed.block_spread, np.log1p(self.more(worse))[:, None]
        yield expected_draws(
            self.process(worse.shape),
            expected.arrivals,
            lambda first, _: log_worse + spread * scipy.special.ndtri(first),
        )

    def process(self, leading: tuple[int, ...] = ()) -> PairedTimesProcess:
        """What adds up the evidence."""
        most, tolerated = (float(self.more(share)) for share in (getattr(self, self.margin or ""), self.tolerated()))
        return PairedTimesProcess(
            max_increase=most, tolerance=tolerated, assumed_spread=ASSUMED_SPREAD, leading=leading
        )


class BlockTest(MetricTest):
    """What a token takes on the canary, over what it takes on stable, block by block."""

    process: PairedTimesProcess
    sample = "blocks"

    def __init__(self, gate: LoadGate) -> None:
        super().__init__(gate.name, needed=gate.min_blocks)
        self._gate, self.process = gate, gate.process()
        self.worse, self.fine = gate.worse, gate.fine

    def take(self, batch: Batch, seconds: float) -> None:
        """As `MetricTest`; a block in which stable served nothing says nothing of the canary."""
        self.missing = batch.missing.get(self.kind, "")
        ratios = []
        for block in batch.blocks:
            canary, stable = self._gate.takes(block.canary), self._gate.takes(block.stable)
            if block.stable.output_tokens and canary is not None and stable is not None:
                self._seen.append(block)
                ratios.append(LIMIT if math.isinf(canary) else math.log(canary / stable))
        if ratios:
            self.process.feed(np.asarray(ratios), seconds)

    def forget(self) -> None:
        self._seen: list[LoadBlock] = []

    @property
    def seen(self) -> int:
        return len(self._seen)

    def _told(self, arm: ArmName) -> float:
        """Of all blocks of one arm together."""
        loads: list[ArmLoad] = [getattr(block, arm) for block in self._seen]
        added = ("requests", "failed", "output_tokens", "seconds")
        whole = {each: sum(getattr(load, each) for load in loads) for each in added}
        return self._gate.told(loads[0].model_copy(update=whole))

    def describe(self) -> str:
        if not self._seen:
            return self.missing or self._gate.nothing
        canary, stable = (self._told(arm) for arm in BOTH)
        return self._gate.compare(canary, stable)

    def numbers(self) -> Mapping[str, float]:
        found = {f"{arm}_{self._gate.number}": self._told(arm) for arm in ArmName if self._seen}
        return {"blocks": float(self.seen), **{name: told for name, told in found.items() if math.isfinite(told)}}


class ThroughputGate(LoadGate):
    """Under the same load the canary may serve `max_drop` fewer tokens a second than stable at most."""

    name = "throughput"
    stages = (StageUse("load", ("load",), by_default=True),)
    scale = "percent"
    margin = "max_drop"
    number = "tokens_per_second"
    nothing = "no block of load in which stable served anything"
    worse = "that it serves fewer than tolerated"

    max_drop: Percent = Field(default=0.1, gt=0, lt=0.9, validate_default=False)
    """Of stable's output tokens a second and engine. The gate passes once the canary is proven to be within it."""
    tolerance: Percent = Field(default=0.02, ge=0, validate_default=False)
    """The gate fails once the canary is proven to serve fewer by more than this."""

    def more(self, worse: float | Array) -> float | Array:
        return 1 / (1 - worse) - 1

    def takes(self, load: ArmLoad) -> float:
        return 1 / load.tokens_per_second if load.output_tokens else math.inf

    def told(self, load: ArmLoad) -> float:
        return load.tokens_per_second

    def compare(self, canary: float, stable: float) -> str:
        return (
            f"canary serves {as_rate(canary)} tokens/s an engine against {as_rate(stable)} on stable "
            f"({canary / stable - 1:+.1%}, allowed -{self.max_drop:.0%})"
        )


def as_rate(tokens_per_second: float) -> str:
    """A throughput as a person reads it: `1,204` or `8.31`."""
    return f"{tokens_per_second:,.0f}" if tokens_per_second >= 100 else f"{tokens_per_second:.3g}"


class CostGate(LoadGate):
    """Under the same load a token of the canary may cost `max_increase` more than one of stable at most."""

    name = "cost"
    stages = (StageUse("load", ("load",)),)
    scale = "cost"
    margin = "max_increase"
    number = "cost_per_million_tokens"
    nothing = "no block of load with a price in which stable served anything"
    worse = "that it is dearer than tolerated"
    fine = "that it costs no more than the margin allows"

    max_increase: Percent = Field(default=0.1, gt=0, validate_default=False)
    """Of what stable's tokens cost, by `cost.per_engine_hour`. The gate passes once the canary is proven to be within
    it."""
    tolerance: Percent = Field(default=0.02, ge=0, validate_default=False)
    """The gate fails once the canary is proven to be dearer by more than this."""

    def more(self, worse: float | Array) -> float | Array:
        return worse

    def takes(self, load: ArmLoad) -> float | None:
        if load.cost is None:
            return None
        return load.cost / load.output_tokens if load.output_tokens else math.inf

    def told(self, load: ArmLoad) -> float:
        return 1e6 * (self.takes(load) or math.nan)

    def compare(self, canary: float, stable: float) -> str:
        change = f"{canary / stable - 1:+.1%}" if math.isfinite(canary) else "it serves none"
        return (
            f"a million tokens cost {canary:,.4g} on the canary against {stable:,.4g} on stable "
            f"({change}, allowed {self.max_increase:+.0%})"
        )
