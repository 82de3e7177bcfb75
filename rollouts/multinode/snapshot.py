"""A snapshot of a region of LeaderWorkerSets, and what can be read from it. Pure.

The Services say which version has a role: the stable's and the canary's each select the pods of one set, and nothing
else is kept anywhere. Weights and copies are the route's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from rollouts.argo.model import parse_time
from rollouts.base import RegionReading, RegionSplit, ServingVersion
from rollouts.cluster.model import guard_note
from rollouts.cluster.routes import RouteKind
from rollouts.kube.pods import pod_problems
from rollouts.manifests.conventions import LOST_USERS, PREVIOUS, PREVIOUS_UNTIL, SET_NAME
from rollouts.manifests.ownership import foreign_object
from rollouts.model import ForeignObject, GuardRollback
from rollouts.multinode.model import EngineGroups, engine_groups, set_of
from tidegate.core.model import Json
from tidegate.core.names import POD_TEMPLATE_HASH, ROLE, VERSION


@dataclass(frozen=True)
class Placement:
    """How users are spread, as Services and route have it."""

    split: RegionSplit = field(default_factory=RegionSplit)
    canary_named: bool = True
    """Whether the canary's Service leads to one version, and says whether that is on trial; false where it was just
    made, and leads to all, and where its version has become the stable."""


@dataclass(frozen=True)
class GroupsSnapshot:
    """A region at one moment. What is not there is None."""

    at: datetime
    name: str
    """The delivery's."""
    routes: RouteKind
    stable_service: Json | None = None
    canary_service: Json | None = None
    route: Json | None = None
    sets: tuple[Json, ...] = ()
    pods: tuple[Json, ...] = ()
    """Of the delivery; read only while some group is missing."""

    @cached_property
    def groups(self) -> tuple[EngineGroups, ...]:
        """Of every set that was not deleted, the latest first."""
        found = [engine_groups(each) for each in self.sets]
        return tuple(sorted((each for each in found if not each.ending), key=lambda each: each.created, reverse=True))

    @property
    def foreign_objects(self) -> tuple[ForeignObject, ...]:
        """Services and route, as far as they are somebody else's."""
        found = (self.stable_service, self.canary_service, self.route)
        return tuple(other for each in found if each and (other := foreign_object(each, self.name)))

    @property
    def has_ways_to_users(self) -> bool:
        """Whether both Services and the route are there."""
        return None not in (self.stable_service, self.canary_service, self.route)

    @property
    def rollout_serves(self) -> bool:
        """Whether a Rollout moves these Services."""
        return any(POD_TEMPLATE_HASH in _selector(each) for each in (self.stable_service, self.canary_service))

    @property
    def stable(self) -> EngineGroups | None:
        """The engines behind the stable's Service, if any are left."""
        return self._in(_set_name(self.stable_service))

    @property
    def trial(self) -> EngineGroups | None:
        """The engines behind the canary's Service, if it leads elsewhere than the stable's."""
        return self._in(_set_name(self.canary_service)) if self.placement.split.canary else None

    def of_version(self, version: str) -> EngineGroups | None:
        """The engines of a version: those with a role, else the latest."""
        return next((each for each in self._by_role if each.version == version), None)

    def without_role(self, version: str) -> tuple[EngineGroups, ...]:
        """The sets of a version to which no Service leads."""
        named = {_set_name(self.stable_service), _set_name(self.canary_service)}
        return tuple(each for each in self.groups if each.version == version and each.name not in named)

    @cached_property
    def placement(self) -> Placement:
        """How users are spread."""
        stable, canary = _version(self.stable_service), _version(self.canary_service)
        if not stable or self.foreign_objects:
            return Placement()
        on_trial = canary and _set_name(self.canary_service) != _set_name(self.stable_service)
        split = RegionSplit(
            stable=stable,
            canary=canary if on_trial else None,
            previous=self._previous((stable, canary)),
            weight=self.routes.weight(self.route, self.name) if self.route else 0,
            mirror=self.routes.mirror(self.route, self.name) if self.route else 0,
        )
        said = ((self.canary_service or {}).get("metadata") or {}).get("labels") or {}
        return Placement(split, canary_named=bool(canary) and (ROLE in said) == bool(on_trial))

    def reading(self, *, stable_url: str, canary_url: str) -> RegionReading:
        """As `BaseFleet` takes it."""
        split = self.placement.split
        urls = {split.stable: stable_url, split.canary: canary_url}
        seen: dict[str, ServingVersion] = {}
        for each in self._by_role:
            down = self._down(each)
            seen.setdefault(
                each.version,
                ServingVersion(
                    version=each.version,
                    digest=each.digest,
                    url=urls.get(each.version, ""),
                    ready=not down,
                    problem=down or None,
                ),
            )
        return RegionReading(split=split, engines=tuple(seen.values()))

    def _down(self, which: EngineGroups) -> str:
        """Why it serves nobody; empty when it does. One that lost its users may be up again, and served them badly."""
        lost = _annotations(self.canary_service).get(LOST_USERS)
        if lost and self.placement.split.canary == which.version:
            return f"none of its engines was ready, so that its users ({lost} %) were sent to the stable"
        return "" if which.ready else self.missing(which)

    def missing(self, which: EngineGroups) -> str:
        """Why not all of its engines are ready."""
        return pod_problems(self.pods_of(which)) or f"{which.ready} of {which.wanted} engines are ready"

    def pods_of(self, which: EngineGroups) -> Sequence[Json]:
        """Leaders and workers of one version."""
        return [pod for pod in self.pods if set_of(pod) == which.name]

    @property
    def is_whole(self) -> bool:
        """Whether no engine is missing of any that should be up."""
        return all(each.is_complete for each in self.groups)

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is on trial, coming up or copied: there is nothing to take back."""
        split = self.placement.split
        return not (split.canary or split.weight or split.mirror or list(self.without_any_role))

    @property
    def without_any_role(self) -> Iterator[EngineGroups]:
        """Engines that are neither stable nor on trial nor kept warm: coming up, or forgotten."""
        roles = self.placement.split.versions
        return (each for each in self.groups if each.version not in roles)

    @property
    def previous_until(self) -> datetime | None:
        """Until when the previous version is kept warm."""
        return parse_time(_annotations(self.stable_service).get(PREVIOUS_UNTIL))

    @property
    def unattended(self) -> GuardRollback | None:
        """What the region's guard took back since the last version was deployed."""
        return guard_note(self.stable_service)

    @property
    def _by_role(self) -> tuple[EngineGroups, ...]:
        named = (_set_name(self.stable_service), _set_name(self.canary_service))
        return tuple(sorted(self.groups, key=lambda each: each.name not in named))

    def _previous(self, others: tuple[str, ...]) -> str | None:
        noted = _annotations(self.stable_service).get(PREVIOUS)
        there = noted and noted not in others and any(each.version == noted for each in self.groups)
        return noted if there else None

    def _in(self, name: str) -> EngineGroups | None:
        return next((each for each in self.groups if name and each.name == name), None)


def _selector(service: Json | None) -> dict[str, str]:
    return ((service or {}).get("spec") or {}).get("selector") or {}


def _set_name(service: Json | None) -> str:
    return _selector(service).get(SET_NAME, "")


def _version(service: Json | None) -> str:
    return _selector(service).get(VERSION, "")


def _annotations(service: Json | None) -> dict[str, str]:
    return ((service or {}).get("metadata") or {}).get("annotations") or {}
