"""The nouns of a fleet: engines to run, arms that serve, the state of a region."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from tidegate.core.model import Value

PORT = "{port}"
"""Stands in an engine's command for the port that the fleet picks."""


class Role(StrEnum):
    """Which part an engine plays in its region."""

    STABLE = "stable"
    """Serves the region's users."""
    CANARY = "canary"
    """On trial: gets copies, or the share of users that `RegionState.weight` says."""
    PREVIOUS = "previous"
    """Was stable before the last promotion; warm, and without users unless the stable cannot be reached."""


class Phase(StrEnum):
    """What a region is doing, as an outsider sees it."""

    EMPTY = "empty"
    """Nothing serves."""
    STEADY = "steady"
    """One version serves everything."""
    TRIAL = "trial"
    """A canary is up; user traffic on it is `RegionState.weight` percent, which may be 0."""
    DEGRADED = "degraded"
    """An engine or the proxy is down."""


class Engine(Value):
    """What a fleet is asked to run; it neither knows nor cares that vLLM is inside."""

    version: str
    """The model version in the registry, such as `7`."""
    digest: str
    """SHA-256 over the model version's files; two engines of one digest serve the same weights."""
    model: str
    """The name that requests carry in their `model` field."""
    command: tuple[str, ...]
    """The process to start; `PORT` in it is replaced by the port to listen on."""
    environment: Mapping[str, str] = {}
    """Added to the fleet's own environment."""
    workdir: str
    """Where the process starts; relative paths in `command` are below it."""
    memory_bytes: int
    """What the process is expected to need, checked before it is started."""
    ready_path: str = "/health"
    """Answers 200 once the engine takes requests."""


class Arm(Value):
    """One version that serves in a region, or could at once."""

    role: Role
    version: str
    digest: str
    url: str
    """The engine's own address, past the proxy: for probes that must reach this arm and no other."""
    ready: bool
    """Its process runs; it was healthy and warm before it got its role."""
    problem: str | None = None
    """Why it is not ready, with the tail of its log, when it died."""


class RegionState(Value):
    """What `Fleet.observe` saw. A wish holds when the state says so, never because it was said."""

    region: str
    phase: Phase
    entry: str
    """The address that users of the region talk to."""
    stable: Arm | None = None
    canary: Arm | None = None
    previous: Arm | None = None
    """The last stable, kept warm so that going back needs no start."""
    weight: int = 0
    """Percent of user traffic on the canary."""
    mirror: int = 0
    """Percent of user traffic copied to the canary."""
    problem: str | None = None
    """Everything that is down, in one line; None when all is well."""
