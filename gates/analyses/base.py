"""What every kind of gate consists of: its settings, and the tests or the monitor that it is judged by.

A kind is the class of its settings. A module of `gates.analyses` has one with its test, its forecast and its words, and
`gates.spec` lists it. Nothing else names a gate.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from gates.evidence.batch import ArmName, Batch, PodEvidence, Source
from gates.model import StageKind, Verdict
from gates.stats.binary import FailureProcess
from gates.stats.e_process import Array, EvidenceProcess
from gates.stats.spread import PodSlots
from gates.stats.times import LatencyProcess
from gates.traffic import Assumptions, Expected, Flow, Scale
from tidegate.core.metrics import MetricSignal
from tidegate.core.model import Loc, SpecConflict, SpecModel


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
        self.forget()

    @abstractmethod
    def take(self, batch: Batch, seconds: float) -> None:
        """Learn from one batch, so many seconds after the one before."""

    @abstractmethod
    def forget(self) -> None:
        """Begin anew what is told of both arms."""

    def restart(self) -> None:
        """Ask again whether the canary is fine; what speaks against it stays."""
        self.forget()
        if self.process:
            self.process.restart_acceptance()

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


BOTH = (ArmName.CANARY, ArmName.STABLE)


class ArmsTest(MetricTest):
    """A comparison of what each arm has counted over the same windows."""

    noun = ""
    """What an arm may have none of, where that is not the sample."""

    @abstractmethod
    def count(self, arm: ArmName) -> int:
        """Of one arm since the last restart."""

    @abstractmethod
    def compare(self) -> str:
        """The description once both arms have been seen."""

    @property
    def seen(self) -> int:
        return self.count(ArmName.CANARY) if self.count(ArmName.STABLE) else 0

    def describe(self) -> str:
        for arm, name in zip(BOTH, ("the canary", "stable"), strict=True):
            if not self.count(arm):
                return f"no {self.noun or self.sample} of {name}" + (f": {self.missing}" if self.missing else "")
        return self.compare()


class PodCountsTest(ArmsTest):
    """What pods counted in bins of one grid: stable's are told apart, the canary's are taken together."""

    process: FailureProcess | LatencyProcess | None

    def __init__(self, kind: str, *, needed: int) -> None:
        super().__init__(kind, needed=needed)
        self._slots = PodSlots()

    def feed(
        self,
        process: FailureProcess | LatencyProcess,
        pods: Sequence[tuple[ArmName, str, Array]],
        seconds: float,
        *,
        bins: int,
    ) -> None:
        """Hand the counts of each pod, with its name, to the process; without the canary's it learns the past."""
        stable, reused = self._slots.place({pod: counts for arm, pod, counts in pods if arm is ArmName.STABLE})
        for slot in reused:
            process.forget_pod(slot)
        stable = stable if stable.shape[-1] == bins else np.zeros((len(stable), bins))
        canaries = [counts for arm, _, counts in pods if arm is ArmName.CANARY]
        canary = np.sum(canaries, axis=0) if canaries else np.zeros(bins)
        for arm, counts in ((ArmName.CANARY, canary), (ArmName.STABLE, stable.sum(axis=0))):
            self._seen[arm] = self._seen.get(arm, 0.0) + counts
        if canaries:
            process.feed(canary, stable, seconds, canary_pods=len(canaries))
        else:
            process.learn(stable, seconds)

    def forget(self) -> None:
        self._seen: dict[ArmName, Array] = {}

    def count(self, arm: ArmName) -> int:
        return int(np.sum(self._seen.get(arm, 0.0)))

    def counted(self, **more: float) -> Mapping[str, float]:
        """Among the numbers: how much each arm has, and by what evidence is tempered."""
        counts = {f"{arm}_{self.sample}": float(self.count(arm)) for arm in BOTH}
        return counts | more | {"design_effect": float(self.process.design_effect.max()) if self.process else 1.0}


@dataclass(frozen=True)
class Conditions:
    """What the statistics of a gate must know of the analysis plan besides the gate's own settings."""

    rollback: float
    """This gate's share of the chance of a false rollback."""
    accept: float
    temper: bool
    mirrored: float | None
    gate: str = ""
    """Its name, under which batches have what is counted for it alone."""
    source: Source = "users"
    """Who counts for it."""


@dataclass(frozen=True)
class StageUse:
    """How a stage of a delivery may ask a gate."""

    stage: StageKind
    sources: tuple[Source, ...] = ()
    """Who counts for it there; empty for the kind's usual sources."""
    by_default: bool = False
    """Whether a stage that names no gates has it."""
    of_users: bool = False
    """Whether users' own answers take the place of these sources where engines keep samples of them."""


class Monitor(ABC):
    """The part of a sequential test that is a gate with statistics of its own."""

    @abstractmethod
    def take(self, batch: Batch, seconds: float) -> None:
        """Learn from one batch, so many seconds after the one before."""

    @abstractmethod
    def restart(self) -> None:
        """Traffic is shared out again."""

    @abstractmethod
    def verdict(self, *, deadline_passed: bool) -> Verdict:
        """What it says of all batches so far."""


class GateSettings(SpecModel):
    """What an analysis plan keeps of a gate, and all that is its kind's."""

    name: ClassVar[str]
    """Its key in specs, plans and verdicts."""
    spec: ClassVar[type[SpecModel] | None] = None
    """What a delivery's spec says at `gates.NAME`, where that is more than the plan keeps."""
    stages: ClassVar[tuple[StageUse, ...]]
    """The stages of a delivery that can ask it."""
    usual_sources: ClassVar[tuple[Source, ...]] = ("users",)
    """Who counts for it where nobody is named."""
    from_batches: ClassVar[bool] = False
    """Whether a file of kind Gates can ask it: batches of evidence are all that it needs."""
    from_pairs: ClassVar[bool] = False
    """Whether it can be asked of pairs of answers, on the word of the source `probe`."""
    judged: ClassVar[bool] = False
    """Whether only those pairs tell it something that a judge has scored."""
    bounded: ClassVar[bool] = True
    """Whether its false alarms spend a share of the error budget; those of a guard have no bound, and spend none."""
    several: ClassVar[bool] = True
    """Whether a delivery can ask several; False where the evidence is made for the settings of one."""

    def signals(self) -> Mapping[Loc, MetricSignal]:
        """What it reads of a Prometheus, each with the setting that asks for it."""
        return {}

    @classmethod
    def use_in(cls, stage: StageKind) -> StageUse | None:
        """How that stage may ask it; None when it cannot."""
        return next((use for use in cls.stages if use.stage == stage), None)

    @classmethod
    def paired(cls) -> bool:
        """Whether it compares what both arms make of the same requests, unless told otherwise."""
        return cls.usual_sources in (("probe",), ("load",))

    @classmethod
    def frozen(cls, spec: SpecModel) -> Self:
        """What an analysis plan keeps of a spec; the kind of a gate is not part of it."""
        return spec if type(spec) is cls else cls(**{name: getattr(spec, name) for name in cls.model_fields})


class TestedGate(GateSettings):
    """A kind that is judged by metric tests, which share the error budget of the whole sequential test."""

    __test__: ClassVar[bool] = False  # Not one of pytest's.
    scale: ClassVar[Scale]
    """How regressions are told."""
    least: ClassVar[str]
    """The setting that says how many requests or pairs a pass needs."""
    margin: ClassVar[str | None] = None
    """The setting that says how much worse the canary may be."""
    worst_regression: ClassVar[float] = 0.9
    """Beyond this a plan looks for nothing."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """What is tolerated must be allowed."""
        if self.margin is None:
            return
        tolerance, most = self.tolerated(), getattr(self, self.margin)
        if tolerance >= most:
            expected = f"less than {self.margin}, {self.written(most)}"
            yield SpecConflict(("tolerance",), self.written(tolerance), expected)

    @classmethod
    def written(cls, share: float) -> str:
        """A margin or a tolerance, as a person writes it."""
        if cls.scale == "score":
            return f"{share:.6g}"
        return f"{share * 100:.6g}{'pp' if cls.scale == 'points' else '%'}"

    @abstractmethod
    def tests(self, conditions: Conditions) -> Iterator[tuple[float, MetricTest]]:
        """The tests of one source, each with its part of the gate's share of the budget."""

    @abstractmethod
    def flows(self, expected: Expected, worse: Array) -> Iterator[Flow]:
        """Expected traffic into each comparison, of canaries that are worse by so much.

        The first is the one that a regression shows itself in.
        """

    def regression(self, assumed: Assumptions) -> float:  # noqa: ARG002
        """The regression that a plan is asked about: of the margin's size."""
        assert self.margin is not None, f"{self.name} says neither a margin nor a regression"
        return float(getattr(self, self.margin))

    def tolerated(self) -> float:
        """The regression that is nobody's fault."""
        return float(getattr(self, "tolerance", 0.0))

    def needed(self) -> int:
        """What must have been seen of the canary before a pass, however clear the evidence, in requests of users."""
        return math.ceil(float(getattr(self, self.least)) / float(getattr(self, "per_request", 1.0)))


class MonitoredGate(GateSettings):
    """A kind with statistics, and an even share of the error budget, of its own."""

    by_looks: ClassVar[bool] = False
    """Whether it counts looks, however many requests there are."""

    @abstractmethod
    def monitor(self, conditions: Conditions) -> Monitor:
        """What takes batches and answers verdicts."""

    @abstractmethod
    def passes(self, expected: Expected, conditions: Conditions) -> float:
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
