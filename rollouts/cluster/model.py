"""A delivery in one region as values: where it is, whose its objects are, its versions, what is noted there. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from pydantic import ValidationError

from rollouts.kube.objects import at
from rollouts.manifests.conventions import (
    ATTEMPT,
    DIGEST,
    LAUNCH,
    UNATTENDED,
    TrafficRouter,
    canary_service,
    stable_service,
)
from rollouts.manifests.ownership import foreign_object
from rollouts.manifests.routers import ROUTERS, RouteKind
from rollouts.manifests.theirs_spec import RolloutReference
from rollouts.model import Engine, ForeignObject, GuardRollback, ImageLaunch
from tidegate.core.model import Json, Value
from tidegate.core.names import DELIVERY, VERSION

Render = Callable[[Engine], Sequence[Json]]
"""Everything that the region needs to serve an engine, in the order in which it is applied; the Rollout is last."""


class Place(Value):
    """One delivery in one region, whatever moves its users."""

    region: str
    name: str
    """The delivery's: its Rollout has it, and its other objects have names made of it, unless others are named."""
    entry: str = ""
    """The address that users of the region talk to; empty for who asks nobody."""
    start_seconds: float = 1800.0
    """How long a version may take from being asked for until all its engines are ready."""
    retry_seconds: float = 600.0
    """How long the region may be silent before an operation is given up; it goes on serving meanwhile."""

    @property
    def by_reference(self) -> bool:
        """Whether the objects that move users are somebody else's, and named by the spec."""
        return False

    def foreign(self, live: Json) -> ForeignObject | None:
        """The object as somebody else's; None when it is this delivery's to write, as what it names by reference is."""
        if self.by_reference and DELIVERY not in (live["metadata"].get("labels") or {}):
            return None
        return foreign_object(live, self.name)


class RegionView:
    """What a kind of region reads at one moment. Everything that is to be known of it is worked out once."""

    def __init__(self, place: Place, first: Json | None, *others: Json | None) -> None:
        """`first` and `others` are the objects that move users, `first` forward; None for one that is not there."""
        self._first = first
        self.foreign_objects = tuple(found for each in (first, *others) if each and (found := place.foreign(each)))
        """Those of them that are somebody else's."""
        self.foreign_mover = place.foreign(first) if first else None
        """That of `first`, with which no operation is possible."""
        self.unattended = guard_note(first)
        """What the region's guard rolled back since the last version was deployed."""

    @property
    def found(self) -> Json:
        """The first of them, which is there."""
        assert self._first is not None, "what is not there does not fit, and has no revision"
        return self._first


class RegionConfig(Place):
    """One delivery in one region of a Rollout."""

    traffic: TrafficRouter = TrafficRouter.GATEWAY_API
    """Whose object that is."""
    theirs: RolloutReference | None = None
    """The Rollout of others that is moved; None for the delivery's own."""
    stable_url: str = ""
    """Where the stable answers, past all weights."""
    canary_url: str = ""
    """Where the canary answers, past all weights."""

    @property
    def rollout(self) -> str:
        return self.theirs.name if self.theirs else self.name

    @property
    def workload(self) -> str:
        """The name of the Deployment whose pod template the Rollout has; empty where it has its own."""
        return (self.theirs.workload or "") if self.theirs else ""

    @property
    def route(self) -> str:
        return self.theirs.route if self.theirs else self.name

    @property
    def routes(self) -> RouteKind:
        """That object, for the Services of the Rollout."""
        services = self.theirs.services if self.theirs else (stable_service(self.name), canary_service(self.name))
        return ROUTERS[self.traffic](*services)

    @property
    def by_reference(self) -> bool:
        return self.theirs is not None


@dataclass(frozen=True)
class Revision:
    """A version that has, or had, engines in the region."""

    hash: str
    version: str
    digest: str
    number: int
    """Of the Rollout's revision; the latest is the highest."""
    attempt: int
    wanted: int
    """Engines that it should have now; 0 for one that is history."""
    available: int
    """Engines that are ready now."""
    created: datetime | None
    """When the region first had it; None where it does not say."""
    replica_set: Json = field(compare=False, repr=False)

    @property
    def is_complete(self) -> bool:
        """Whether all the engines that it should have are ready."""
        return 0 < self.wanted <= self.available


def version_labels(template: Json) -> tuple[str, str, int]:
    """Version, digest and attempt of a pod template."""
    version = at(template, "metadata", "labels", VERSION, default="")
    return version, annotation(template, DIGEST), int(annotation(template, ATTEMPT) or 1)


def launch_of(template: Json) -> ImageLaunch | None:
    """How a pod template's image is started; None for one that tidegate built."""
    said = annotation(template, LAUNCH)
    return ImageLaunch.model_validate_json(said) if said else None


def annotation(found: Json | None, key: str) -> str:
    """What an annotation of an object says; empty where it says nothing."""
    return str(at(found, "metadata", "annotations", key, default=""))


Note = TypeVar("Note", bound=Value)


def noted(kind: type[Note], said: str) -> Note | None:
    """What an annotation remembers; None where it says nothing, or nothing that can be read."""
    try:
        return kind.model_validate_json(said) if said else None
    except ValidationError:
        return None


def guard_note(found: Json | None) -> GuardRollback | None:
    """What a guard has noted on the object that moves users."""
    return noted(GuardRollback, annotation(found, UNATTENDED))
