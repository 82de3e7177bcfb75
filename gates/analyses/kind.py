"""A kind of gate: everything that specs, planning and sequential tests ask of one, in one class.

A module of `gates.analyses` has one subclass of `TestedGate` or `MonitoredGate` with the settings, the test, the
forecast and the words of its gate; `gates.kinds` lists an instance of it. Nothing else names a gate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

from gates.analyses.base import MetricTest
from gates.analyses.drift.reference import DriftReference
from gates.evidence.batch import Batch, Source
from gates.model import NoData, Verdict
from gates.stats.e_process import Array
from gates.traffic import ArrivalRates, Assumptions, Exposure, Flow, GateForecast, Scale
from tidegate.core.model import SpecModel

Settings = TypeVar("Settings", bound=SpecModel)
StageKind = Literal["offline", "shadow", "canary"]
ExpectedFlow = Callable[[ArrivalRates, Array, Assumptions], Flow]
"""Expected traffic of canaries that are worse by so much, on its way into the process of one comparison."""


@dataclass(frozen=True)
class Conditions:
    """What the statistics of a gate must know of the analysis plan besides the gate's own settings."""

    rollback: float
    """This gate's share of the chance of a false rollback."""
    accept: float
    temper: bool
    mirrored: float | None
    copies_by_window: bool
    """Whether mirrored copies are counted window by window, as `e-values/1` did."""
    reference: DriftReference | NoData


@dataclass(frozen=True)
class StageUse:
    """How a stage of a delivery may ask a gate."""

    stage: StageKind
    sources: tuple[Source, ...] = ()
    """Who counts for it there; empty for the kind's usual sources."""
    by_default: bool = False
    """Whether a stage that names no gates has it."""


class Monitor(Protocol):
    """The part of a sequential test that is a gate with statistics of its own."""

    def refuse(self, batch: Batch) -> None:
        """Raise a `UsageError` when the batch does not fit the plan."""
        ...

    def take(self, batch: Batch, seconds: float) -> None:
        """Learn from one batch, so many seconds after the one before."""
        ...

    def restart(self) -> None:
        """Traffic is shared out again."""
        ...

    def verdict(self, *, deadline_passed: bool) -> Verdict:
        """What it says of all batches so far."""
        ...


class GateKind(ABC, Generic[Settings]):
    """What every kind of gate has."""

    name: str
    """Its key in specs, plans and verdicts."""
    spec: type[SpecModel]
    """What a spec says at `gates.NAME`."""
    settings: type[Settings]
    """What an analysis plan keeps of that: all of it, unless the kind says otherwise."""
    stages: tuple[StageUse, ...]
    """The stages of a delivery that can ask it."""
    usual_sources: tuple[Source, ...] = ("users",)
    """Who counts for it where nobody is named."""
    from_batches: bool = False
    """Whether a file of kind Gates can ask it: batches of evidence are all that it needs."""
    judged: bool = False
    """Whether only those pairs tell it something that a judge has scored."""

    def use_in(self, stage: StageKind) -> StageUse | None:
        """How that stage may ask it; None when it cannot."""
        return next((use for use in self.stages if use.stage == stage), None)

    def frozen(self, spec: SpecModel) -> Settings:
        """The settings that an analysis plan keeps of those in a spec."""
        if isinstance(spec, self.settings):
            return spec
        return self.settings(**{name: getattr(spec, name) for name in self.settings.model_fields})


class TestedGate(GateKind[Settings]):
    """A kind that is judged by metric tests, which share the error budget of the whole sequential test."""

    __test__ = False  # Not one of pytest's.
    scale: Scale
    """How regressions are told."""
    sample: str
    """The setting that says how many requests or pairs a pass needs."""
    margin: tuple[str, float] | None = None
    """The setting that a plan may advise to widen, and how far at most."""
    worst_regression: float = 0.9
    """Beyond this a plan looks for nothing."""

    @abstractmethod
    def tests(self, settings: Settings, source: Source, conditions: Conditions) -> Iterator[tuple[float, MetricTest]]:
        """The tests of one source, each with its part of the gate's share of the budget."""

    @abstractmethod
    def flows(self, settings: Settings, *, paired: bool, temper: bool) -> Iterator[ExpectedFlow]:
        """Expected traffic into each comparison: first the one that a regression shows itself in."""

    def regression(self, settings: Settings, assumed: Assumptions) -> float:
        """The regression that a plan is asked about: of the margin's size."""
        _ = assumed
        assert self.margin is not None, f"{self.name} says neither a margin nor a regression"
        return float(getattr(settings, self.margin[0]))

    def tolerated(self, settings: Settings) -> float:
        """The regression that is nobody's fault."""
        return float(getattr(settings, "tolerance", 0.0))

    def needed(self, settings: Settings) -> int:
        """What must have been seen of the canary before a pass, however clear the evidence."""
        return int(getattr(settings, self.sample))


class MonitoredGate(GateKind[Settings]):
    """A kind with statistics, and an even share of the error budget, of its own."""

    @abstractmethod
    def monitor(self, settings: Settings, conditions: Conditions) -> Monitor:
        """What takes batches and answers verdicts."""

    @abstractmethod
    def forecast(
        self, settings: Settings, source: Source, exposure: Exposure, assumed: Assumptions, conditions: Conditions
    ) -> GateForecast:
        """What it will typically do on the word of one source."""

    @abstractmethod
    def passes(
        self, settings: Settings, source: Source, exposure: Exposure, assumed: Assumptions, conditions: Conditions
    ) -> float:
        """Seconds until half of all healthy canaries have passed; infinity for never."""


AnyGateKind = GateKind[Any]
