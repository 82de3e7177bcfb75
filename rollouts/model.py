"""The nouns of a fleet: engines to run, arms that serve, the state of a region."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Self

from pydantic import JsonValue, model_validator

from rollouts.errors import NotPossible
from tidegate.core.model import Value

PORT = "{port}"
"""Stands in an engine's command for the port that the fleet picks."""


REGION = "{region}"
"""Stands in an engine's command for the region that it is started in."""


NOT_OURS_TO_START = "unnamed"
"""The image of an engine that somebody else starts."""


class Role(StrEnum):
    """Which part an engine plays in its region."""

    STABLE = "stable"
    """Serves the region's users."""
    CANARY = "canary"
    """On trial: gets copies, or the share of users that `RegionState.weight` says."""
    PREVIOUS = "previous"
    """Was stable before the last promotion; warm, and without users unless the stable cannot be reached."""


class RegionPhase(StrEnum):
    """What a region is doing, as an outsider sees it."""

    EMPTY = "empty"
    """Nothing serves."""
    UNKNOWN = "unknown"
    """Something may serve, and it is not for this delivery to say what: a Rollout of somebody else's, or pods of which
    none has become stable."""
    STEADY = "steady"
    """One version serves everything."""
    TRIAL = "trial"
    """A canary is up; user traffic on it is `RegionState.weight` percent, which may be 0."""
    DEGRADED = "degraded"
    """An engine or the proxy is down, or the region took a version back by itself."""


class WeightsPull(Value):
    """What brings a version's files into a pod before its engine starts."""

    image: str
    """By digest; tidegate is in it."""
    command: tuple[str, ...]
    environment: Mapping[str, str] = {}
    secrets: tuple[str, ...] = ()
    """Secrets whose keys become variables of it, and of nothing else in the pod."""


class ImageLaunch(Value):
    """How an image is started that tidegate did not build: its own entrypoint, and what that is told."""

    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    ends_its_answers: bool = False
    """Whether it answers to the end what it has begun, once it is told to stop. One that does not is told only after
    all of the drain."""
    claim: str = ""
    """The volume claim with its weights; empty for none."""
    pull: WeightsPull | None = None
    """None where the weights are there already, or the engine downloads them itself."""
    accelerators: int = 1
    """How many one engine takes."""


class Engine(Value):
    """What a fleet is asked to run: a command on this machine, or an image in a cluster.

    It neither knows nor cares that vLLM is inside.
    """

    version: str
    """The model version in the registry, such as `7`."""
    digest: str
    """SHA-256 over the model version's files; two engines of one digest serve the same weights."""
    model: str
    """The name that requests carry in their `model` field."""
    image: str = ""
    """The image to run, by digest; empty for an engine of this machine."""
    launch: ImageLaunch | None = None
    """How the image is started; None for one of tidegate's own making, which knows."""
    pods: Mapping[str, JsonValue] | None = None
    """What else makes its pods, as it was recorded; None for what the fleet's spec says now."""
    command: tuple[str, ...] = ()
    """The process to start; `PORT` in it is replaced by the port to listen on, `REGION` by the region. Empty for an
    image."""
    environment: Mapping[str, str] = {}
    """Added to the fleet's own environment."""
    workdir: str = "/"
    """Where the process starts; relative paths in `command` are below it."""
    memory_bytes: int = 0
    """What the process is expected to need, checked before it is started; in a cluster its pods say that."""
    ready_path: str = "/health"
    """Answers 200 once the engine takes requests."""

    @model_validator(mode="after")
    def _one_of_the_two(self) -> Self:
        if bool(self.image) == bool(self.command):
            raise ValueError("an engine is either an image or a command")
        return self


class EngineSet(Value):
    """One version that serves in a region, or could at once."""

    role: Role
    version: str
    digest: str
    url: str
    """The engine's own address, past the proxy: for probes that must reach this arm and no other. Empty when it has
    none, as a previous version in a cluster."""
    ready: bool
    """Its process runs, or a pod of it does; it was healthy and warm before it got its role."""
    problem: str | None = None
    """Why it is not ready, with the tail of its log, when it died."""
    engines: int = 1
    """How many of it answer."""


class ForeignObject(Value):
    """An object of somebody else's where one of this delivery's would be; it is left as it is."""

    kind: str
    name: str
    namespace: str = ""
    """Empty for an object without one."""
    owner: str
    """Who manages it and who wrote it last, as far as it says."""

    def __str__(self) -> str:
        """As a person reads it: `Service chat-stable in serving is not tidegate's (Helm release chat)`."""
        place = f" in {self.namespace}" if self.namespace else ""
        return f"{self.kind} {self.name}{place} is not tidegate's ({self.owner})"


class ForeignChange(Value):
    """Somebody else than tidegate asked the region for the version that it is asked for now."""

    version: str
    """Empty when what was asked for says none."""
    reason: str
    """Who, when and where, in one line, as it is told when another version was on trial."""


class GuardRollback(Value):
    """A trial that the region's guard rolled back, because nobody carried it any more."""

    version: str
    at: datetime
    """When the guard began to roll it back."""
    since: datetime
    """When somebody was heard of last."""
    who: str = ""
    """Who that was, in words; empty when unknown."""

    def __str__(self) -> str:
        """As a person reads it, in UTC."""
        at, since = (moment.astimezone(UTC) for moment in (self.at, self.since))
        last = f"{since:%H:%M:%S}" if at.date() == since.date() else f"{since:%Y-%m-%d %H:%M:%S}"
        who = f" ({self.who})" if self.who else ""
        return (
            f"version {self.version} was rolled back by the region's guard at {at:%Y-%m-%d %H:%M:%S} UTC: "
            f"nothing was heard of its carrier{who} since {last}"
        )


class CarrierHeartbeat(Value):
    """Who carries a region's trial, and when that was last heard of."""

    who: str
    """In words: host and process."""
    heard: datetime | None
    """None when nothing ever was."""
    unattended_seconds: float
    """How long nothing may be heard until the region ends the trial by itself."""
    key: str = ""
    """That the delivery was opened with; empty for none."""


class RegionState(Value):
    """What `Fleet.observe` found. An operation is complete when the state shows it, not when it was accepted."""

    region: str
    phase: RegionPhase
    entry: str
    """The address that users of the region talk to."""
    stable: EngineSet | None = None
    canary: EngineSet | None = None
    previous: EngineSet | None = None
    """The last stable, kept warm so that going back needs no start."""
    warm: tuple[str, ...] = ()
    """Versions without users whose engines are up: a rollback goes to one of them without a start."""
    weight: int = 0
    """Percent of user traffic on the canary."""
    mirror: int = 0
    """Percent of user traffic copied to the canary."""
    problem: str | None = None
    """Everything that is down, in one line; None when all is well."""
    note: str = ""
    """What the operation that ended in this state met, and is no problem any more; empty for nothing."""
    foreign_change: ForeignChange | None = None
    """None when tidegate asked last, and where nobody else can."""
    route_writer: str = ""
    """Who wrote the weights last, as the API server names them; empty where nobody notes it."""
    foreign_objects: tuple[ForeignObject, ...] = ()
    """Objects of others where this delivery's would be, among those that were looked at."""
    taken_away: str = ""
    """That the last trial was ended by somebody, or by the region because nobody carried it any more: neither is the
    version's fault. Empty when it was not, and once another trial begins."""
    unattended: GuardRollback | None = None
    """What the region's guard rolled back since the last version was deployed; None when it took nothing back."""


def require_percent(number: int) -> None:
    """Check a share of users or of requests.

    Raises:
        NotPossible: it is not from 0 to 100.
    """
    if not 0 <= number <= 100:
        raise NotPossible(f"{number} is no percentage", hint="0 to 100")
