"""What every analysis consists of: a kind of gate, and the tests and monitors that it is judged by.

A module of `gates.analyses` has one subclass of `TestedGate` or `MonitoredGate` with the settings, the test, the
forecast and the words of its gate; `gates.spec` lists an instance of it. Nothing else names a gate.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from gates.analyses.drift.spec import DriftReference
from gates.evidence.batch import ArmName, Batch, PodEvidence, PodTrials, Source
from gates.model import NoData, StageKind, Verdict
from gates.stats.binary import FailureProcess
from gates.stats.e_process import Array, EvidenceProcess
from gates.stats.pod_slots import PodSlots
from gates.traffic import ArrivalRates, Assumptions, Exposure, Flow, GateForecast, Scale
from tidegate.core.metrics import MetricSignal
from tidegate.core.model import Loc, SpecModel


class MetricTest(ABC):
    """One comparison of both arms on one source, asked again with every batch."""

    kind: str
    """What is compared, when a gate compares several things: `failed`, `refused`, `coverage`."""
    worse = "that it is worse than tolerated"
    fine = "that it is within the margin"
    sample = "requests"
    """What `seen` counts."""

    process: EvidenceProcess | None = None
    """What adds up the evidence; None while nothing has begun."""

    def __init__(self, kind: str, *, needed: int) -> None:
        """`needed` is what must have been seen of the canary before a pass, however clear the evidence."""
        self.kind, self.needed = kind, needed
        self.missing = ""
        """Why the last batch had nothing for this question, when it said so."""

    @abstractmethod
    def take(self, batch: Batch, seconds: float) -> None:
        """Learn from one batch, so many seconds after the one before."""

    @abstractmethod
    def restart(self) -> None:
        """Ask again whether the canary is fine; what speaks against it stays."""

    @property
    def log_worse(self) -> float:
        """Natural logarithm of the evidence that the canary is worse."""
        return float(self.process.log_worse) if self.process else 0.0

    @property
    def log_fine(self) -> float:
        """Natural logarithm of the evidence that it is within the margin."""
        return float(self.process.log_fine) if self.process and not self.shows_nothing else 0.0

    @property
    def shows_nothing(self) -> str:
        """Why the worst of all canaries would look no worse next to such a stable arm; empty when it would."""
        return ""

    @property
    @abstractmethod
    def seen(self) -> int:
        """Requests of the canary, or pairs, since the last restart."""

    @abstractmethod
    def describe(self) -> str:
        """Both arms, the difference, what is allowed; or what is missing."""

    @abstractmethod
    def numbers(self) -> Mapping[str, float]:
        """What the description rests on; names carry their unit."""

    def auxiliary(self) -> Mapping[str, float]:
        """Extra numbers for charts; the description does not rest on them."""
        return {}


Settings = TypeVar("Settings", bound=SpecModel)
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
    reference: DriftReference | NoData
    gate: str = ""
    """Its name, under which batches have what is counted for it alone."""


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
    from_pairs: bool = False
    """Whether it can be asked of pairs of answers, on the word of the source `probe`."""
    judged: bool = False
    """Whether only those pairs tell it something that a judge has scored."""
    bounded: bool = True
    """Whether its false alarms spend a share of the error budget; those of a guard have no bound, and spend none."""
    several: bool = True
    """Whether a delivery can ask several; False where the evidence is made for the settings of one."""

    def signals(self, settings: Settings) -> Mapping[Loc, MetricSignal]:
        """What it reads of a Prometheus, each with the setting that asks for it."""
        _ = settings
        return {}

    def use_in(self, stage: StageKind) -> StageUse | None:
        """How that stage may ask it; None when it cannot."""
        return next((use for use in self.stages if use.stage == stage), None)

    def frozen(self, spec: SpecModel) -> Settings:
        """The settings that an analysis plan keeps of those in a spec; the kind of a gate is not one of them."""
        if type(spec) is self.settings:
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


def as_ratio(log_evidence: float) -> float:
    """Evidence as a number, within what JSON and a plot can bear."""
    return math.exp(min(max(log_evidence, math.log(1e-12)), math.log(1e12)))


def as_odds(log_evidence: float) -> str:
    """Evidence as a person says it: `340:1`, or `1:12` when it speaks for the opposite."""
    # Beyond a million the number says nothing more.
    if log_evidence > math.log(1e6):
        return "over 1,000,000:1"
    if log_evidence < -math.log(1e6):
        return "under 1:1,000,000"
    ratio = math.exp(abs(log_evidence))
    shown = f"{ratio:,.0f}" if ratio >= 9.95 else f"{ratio:.2g}"
    return f"{shown}:1" if log_evidence >= 0 else f"1:{shown}"


def pods_of(batch: Batch, arm: ArmName) -> list[PodEvidence]:
    """The pods of one arm."""
    return [pod for pod in batch.arms if pod.arm is arm]


class BadShareTest(MetricTest):
    """Trials of both arms in the same scrapes, and which of them ended badly."""

    process: FailureProcess
    does: str
    """What the canary does with those that did, in a description: `has`, `failed`."""
    events: str
    """Their name among the numbers."""

    def __init__(self, kind: str, *, needed: int, max_increase: float, tolerance: float, temper: bool) -> None:
        """Differences of two shares."""
        super().__init__(kind, needed=needed)
        self._max_increase = max_increase
        self.process = FailureProcess(max_increase=max_increase, tolerance=tolerance, temper=temper)
        self._slots = PodSlots()
        self._trials: Counter[ArmName] = Counter()
        self._events: Counter[ArmName] = Counter()

    @abstractmethod
    def trials(self, batch: Batch) -> Sequence[PodTrials]:
        """Those of a batch, pod by pod."""

    @abstractmethod
    def why_missing(self, batch: Batch) -> str:
        """Why a batch has none, when it says so."""

    def take(self, batch: Batch, seconds: float) -> None:
        self.missing = self.why_missing(batch)
        pods = self.trials(batch)
        for pod in pods:
            self._trials[pod.arm] += pod.trials
            self._events[pod.arm] += pod.events
        of_stable = {pod.pod: _counts(pod) for pod in pods if pod.arm is ArmName.STABLE}
        stable, reused = self._slots.place(of_stable)
        for slot in reused:
            self.process.forget_pod(slot)
        stable = stable if of_stable else np.zeros((len(stable), 2))
        canaries = [_counts(pod) for pod in pods if pod.arm is ArmName.CANARY and pod.trials]
        if canaries:
            self.process.feed(np.sum(canaries, axis=0), stable, seconds, canary_pods=len(canaries))
        else:
            self.process.learn(stable, seconds)

    def restart(self) -> None:
        self._trials.clear()
        self._events.clear()
        self.process.restart_acceptance()

    @property
    def seen(self) -> int:
        return self._trials[ArmName.CANARY] if self._trials[ArmName.STABLE] else 0

    def describe(self) -> str:
        for arm in (ArmName.CANARY, ArmName.STABLE):
            if not self._trials[arm]:
                reason = f": {self.missing}" if self.missing else ""
                return f"no {self.sample} of {'the canary' if arm is ArmName.CANARY else 'stable'}{reason}"
        increase = self._share(ArmName.CANARY) - self._share(ArmName.STABLE)
        return (
            f"canary {self.does} {self._of(ArmName.CANARY)} against {self._of(ArmName.STABLE)} on stable "
            f"({increase * 100:+z.1f} pp, allowed {self._max_increase * 100:+g} pp)"
        )

    @property
    def shows_nothing(self) -> str:
        shares = [self._share(arm) for arm in ArmName if self._trials[arm]]
        if len(shares) < 2 or min(shares) + self._max_increase < 1:
            return ""
        return "stable leaves no room for a canary that is worse by the margin"

    def numbers(self) -> Mapping[str, float]:
        arms = (ArmName.CANARY, ArmName.STABLE)
        trials = {f"{arm}_{self.sample}": float(self._trials[arm]) for arm in arms}
        events = {f"{arm}_{self.events}": float(self._events[arm]) for arm in arms}
        return trials | events | {"design_effect": float(self.process.design_effect.max())}

    def _share(self, arm: ArmName) -> float:
        return self._events[arm] / self._trials[arm]

    def _of(self, arm: ArmName) -> str:
        return f"{self._events[arm]:,} of {self._trials[arm]:,} ({self._share(arm):.1%})"


def _counts(pod: PodTrials) -> Array:
    return np.asarray([pod.trials - pod.events, pod.events], dtype=np.float64)
