"""The nouns of a delivery: its steps, its plan, how it ended."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum

from gates.model import GateOutcome
from gates.traffic import Change, GateForecast
from registry.model import Digest, EngineRecord, InnerPath, ModelVersion
from tidegate.core.errors import ExitCode
from tidegate.core.model import Value


class StageName(StrEnum):
    """The stages, in the order in which a version meets them."""

    BUILD = "build"
    """Once: both versions are here, and every region serves the champion."""
    DEPLOY = "deploy"
    """In each region: the canary is up, without users."""
    SMOKE = "smoke"
    """In each region: it answers, as its registered files say it should."""
    OFFLINE = "offline"
    """Once, in the first region: the golden set."""
    LOAD = "load"
    """Once, in the first region: the same load on both versions."""
    SHADOW = "shadow"
    """In each region: copies of user traffic."""
    CANARY = "canary"
    """In each region, once for each weight: users."""
    PROMOTE = "promote"
    """In each region: the canary becomes stable."""
    BAKE = "bake"
    """Once for each wave: it stays well."""
    FINALIZE = "finalize"
    """Once: the registry's aliases move."""


class GatePlan(Value):
    """What a gate needs before it can answer, and what it will see."""

    gate: str
    needs: int | None
    """Requests (or prompts, or pairs) on the canary until a healthy version has passed; None when it never does."""
    seconds: float | None
    """How long those take at the stated traffic; None when no traffic is stated."""
    forecasts: tuple[GateForecast, ...] = ()
    """One for each source that counts for the gate."""


class SpecChange(Value):
    """A change of the spec by which no step of a stage is too late any more."""

    change: Change
    line: str
    """What to write: `canary: {weights: [25, 50]}`, of which all other settings stay."""
    seconds_to_pass: float | None = None
    """Until half of all healthy versions have passed the stage's slowest gate with it, as planned."""


class PlanStep(Value):
    """One stage in one place: the unit that is started, recorded and, after a crash, repeated."""

    stage: StageName
    wave: int = 0
    """From 1; 0 for what is done once for the whole delivery."""
    region: str | None = None
    weight: int | None = None
    """Percent of users, for `canary`; None for every other stage."""
    expected_seconds: float = 0.0
    """When its gates answer as soon as they can."""
    gates: tuple[GatePlan, ...] = ()
    approvals: tuple[str, ...] = ()
    """What people must have approved before it starts, such as `wave@2`."""

    @property
    def id(self) -> str:
        """As it stands in the ledger: `canary@eu-west-1/25`."""
        if self.stage is StageName.BAKE:
            return f"{self.stage}@{self.wave}"
        name = f"{self.stage}@{self.region}" if self.region else str(self.stage)
        return f"{name}/{self.weight}" if self.weight is not None else name


class Resolved(Value):
    """What was settled when the delivery was opened; whatever anybody writes elsewhere later changes nothing."""

    spec: Digest = "0" * 64
    """Of the spec's file; before anything is settled one that no file has."""
    gates: Digest = "0" * 64
    """Of the settings of all gates."""
    files: Mapping[InnerPath, Digest] = {}
    """Of every kept file, the spec included, by its place; none where they could not be kept."""
    images: Mapping[str, str] = {}
    """What clusters serve, by the number of the model version: references by digest."""
    requested_by: str = ""
    """Who asked for it, as far as the machine knew that opened it."""


def expected_seconds(steps: Iterable[tuple[int, str | None, float]]) -> float:
    """How long steps take, each by its wave, its region and its seconds; regions of a wave run together."""
    alone, lanes = 0.0, dict[int, dict[str, float]]()
    for wave, region, seconds in steps:
        if region is None:
            alone += seconds
        else:
            lane = lanes.setdefault(wave, {})
            lane[region] = lane.get(region, 0.0) + seconds
    return alone + sum(max(lane.values()) for lane in lanes.values())


class PlannedSteps(Value):
    """What will happen, in order, before anything does."""

    name: str
    regions: tuple[str, ...]
    steps: tuple[PlanStep, ...]

    @property
    def expected_seconds(self) -> float:
        """As `expected_seconds`, of its steps."""
        return expected_seconds((each.wave, each.region, each.expected_seconds) for each in self.steps)


class UnresolvedPlan(PlannedSteps):
    """Of versions that were not looked up, since no registry was asked."""

    model: str
    """The registered model's name."""
    origin: str
    """The alias of the version to deliver."""
    target: str
    """The alias that it will get."""


class Plan(PlannedSteps):
    """Of two versions, as the registry has them."""

    version: ModelVersion
    champion: ModelVersion
    engine: EngineRecord | None = None
    """What is delivered; None in plans of a tidegate that knew engines by their model version alone."""
    champion_engine: EngineRecord | None = None
    """What is in production; None where nobody has recorded it."""
    resolved: Resolved = Resolved()
    """None before a delivery is opened, and of one whose tidegate settled nothing."""

    @property
    def on_trial(self) -> str:
        """The name by which regions, metrics and the ledger know what is delivered."""
        return self.engine.name if self.engine else self.version.version

    @property
    def in_production(self) -> str:
        """The same of what serves before."""
        return self.champion_engine.name if self.champion_engine else self.champion.version

    @property
    def is_engine_change(self) -> bool:
        """Whether the model version stays, and its engine alone is another one."""
        return self.version.version == self.champion.version

    @property
    def engine_names(self) -> tuple[str, str] | None:
        """Both names, where one is not the number of its version."""
        names = self.on_trial, self.in_production
        return names if names != (self.version.version, self.champion.version) else None


class Ending(StrEnum):
    """How a delivery ended."""

    DELIVERED = "delivered"
    ROLLED_BACK = "rolled-back"
    """A gate said no, or the canary died."""
    INCONCLUSIVE = "inconclusive"
    """A stage's time was over without a verdict."""
    INTERRUPTED = "interrupted"
    """A person or the system asked it to stop, or its process died."""
    FAILED = "failed"
    """Something outside was not there; says nothing about the version."""

    @classmethod
    def recorded(cls, said: str | None) -> Ending:
        """What a run's tag says, which anybody may have written: what is no ending is that of one that died."""
        return cls(said) if said in list(cls) else cls.INTERRUPTED


ENDING_OF = {
    GateOutcome.PASS: Ending.DELIVERED,
    GateOutcome.RUNNING: Ending.INCONCLUSIVE,
    GateOutcome.INCONCLUSIVE: Ending.INCONCLUSIVE,
    GateOutcome.ERROR: Ending.FAILED,
    GateOutcome.FAIL: Ending.ROLLED_BACK,
}
"""What the worst verdict of a stage makes of the delivery."""


EXIT_CODES = {
    Ending.DELIVERED: ExitCode.DELIVERED,
    Ending.ROLLED_BACK: ExitCode.ROLLED_BACK,
    Ending.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
    Ending.INTERRUPTED: ExitCode.INTERRUPTED,
    Ending.FAILED: ExitCode.OUTSIDE,
}


class Left(Value):
    """A region that is not back though it was asked: something of the delivery may still be on trial there."""

    region: str
    since: datetime
    """When it was asked first."""
    serves: str
    """What was last seen there, and when, in words; never more than somebody saw."""

    def __str__(self) -> str:
        # Whoever may write the ledger must not choose what the person on call types.
        command = shlex.join(["tidegate", "rollback", "SPEC", "--region", self.region])
        serves = self.serves.replace("`", "'")
        return f"{self.region}, since {self.since:%H:%M:%S} UTC ({serves}): roll it back with `{command}`"


class Result(Value):
    """How a delivery ended, and why."""

    delivery: str
    ending: Ending
    reason: str
    exit_code: ExitCode
    left: tuple[Left, ...] = ()
    """The regions that are still open; none where all are back."""
