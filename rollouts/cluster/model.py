"""A delivery in one region as values: where it is, whose its objects are, its versions, what is noted there. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from pydantic import ValidationError

from rollouts.argo.model import hash_of, parse_time, revision_of
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
    def operation_seconds(self) -> float:
        """The deadline of every operation, `shift` and the others: engines that start, and a region that is silent."""
        return self.start_seconds + self.retry_seconds

    @property
    def by_reference(self) -> bool:
        """Whether the objects that move users are somebody else's, and named by the spec."""
        return False

    def foreign(self, live: Json) -> ForeignObject | None:
        """The object as somebody else's; None when it is this delivery's to write, as what it names by reference is."""
        if self.by_reference and DELIVERY not in (live["metadata"].get("labels") or {}):
            return None
        return foreign_object(live, self.name)


class RegionView(ABC):
    """What a kind of region reads at one moment."""

    place: Place

    @property
    @abstractmethod
    def movers(self) -> Sequence[Json | None]:
        """The objects that move users, the one that moves them forward first; None for one that is not there."""

    @property
    def foreign_objects(self) -> tuple[ForeignObject, ...]:
        """Those of them that are somebody else's."""
        return tuple(other for each in self.movers if each and (other := self.place.foreign(each)))

    @property
    def foreign_mover(self) -> ForeignObject | None:
        """The first of them, where it is somebody else's: then no operation is possible."""
        first = self.movers[0]
        return self.place.foreign(first) if first else None

    @property
    def unattended(self) -> GuardRollback | None:
        """What the region's guard rolled back since the last version was deployed."""
        return guard_note(self.movers[0])


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
        """The name of the Rollout."""
        return self.theirs.name if self.theirs else self.name

    @property
    def workload(self) -> str:
        """The name of the Deployment whose pod template the Rollout has; empty where it has its own."""
        return (self.theirs.workload or "") if self.theirs else ""

    @property
    def route(self) -> str:
        """The name of the object that splits users."""
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

    created: datetime | None = None
    """When the region first had it; None where it does not say."""

    @property
    def is_complete(self) -> bool:
        """Whether all the engines that it should have are ready."""
        return 0 < self.wanted <= self.available


VersionOf = Callable[[Json], tuple[str, str, int]]
"""Version, digest and attempt of a pod template."""


def revision_of_replica_set(replica_set: Json, version_of: VersionOf) -> Revision:
    """What a ReplicaSet is."""
    version, digest, attempt = version_of(replica_set["spec"]["template"])
    return Revision(
        hash=hash_of(replica_set),
        version=version,
        digest=digest,
        number=revision_of(replica_set),
        attempt=attempt,
        wanted=int(replica_set["spec"].get("replicas") or 0),
        available=int((replica_set.get("status") or {}).get("availableReplicas") or 0),
        created=parse_time(replica_set["metadata"].get("creationTimestamp")),
    )


def version_labels(template: Json) -> tuple[str, str, int]:
    """Version, digest and attempt of a pod template."""
    version = at(template, "metadata", "labels", VERSION, default="")
    return version, annotation(template, DIGEST), int(annotation(template, ATTEMPT) or 1)


def launch_of(template: Json) -> ImageLaunch | None:
    """How a pod template's image is started; None for one that tidegate built."""
    said = annotation(template, LAUNCH)
    return ImageLaunch.model_validate_json(said) if said else None


def next_attempt(version: str, known: Iterable[Revision]) -> int:
    """The number of the next trial of a version: one more than any that the region remembers."""
    return max((each.attempt for each in known if each.version == version), default=0) + 1


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
