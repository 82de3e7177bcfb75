"""A region of LeaderWorkerSets as an outsider sees it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rollouts.arms import state
from rollouts.base import arms_of
from rollouts.cluster.model import RegionConfig
from rollouts.manifests.ownership import last_writer
from rollouts.model import RegionPhase, RegionState, Role
from rollouts.multinode.snapshot import GroupsSnapshot


def region_state(config: RegionConfig, snapshot: GroupsSnapshot) -> RegionState:
    """By the rules of every fleet whose users tidegate moves, with what only a cluster can tell."""
    reading = snapshot.reading(stable_url=config.stable_url, canary_url=config.canary_url)
    told = state(config.region, arms_of(reading), entry=config.entry, proxy_alive=True)
    return told.model_copy(
        update={
            "phase": _phase(told, snapshot),
            "problem": "; ".join(_problems(config, told, snapshot)) or None,
            # Of a region without a trial, all users are on the stable, whatever the route gives the canary's Service.
            "weight": told.weight if told.canary else 0,
            "mirror": told.mirror if told.canary else 0,
            "route_writer": last_writer(snapshot.route) if snapshot.route else "",
            "foreign_objects": snapshot.foreign_objects,
            "taken_away": str(snapshot.unattended) if snapshot.unattended else "",
            "unattended": snapshot.unattended,
        }
    )


def _phase(told: RegionState, snapshot: GroupsSnapshot) -> RegionPhase:
    """Empty only where no pod can serve: who reads `empty` may bring something up there."""
    if told.stable is None:
        serves = snapshot.groups or snapshot.foreign_objects or snapshot.rollout_serves
        return RegionPhase.UNKNOWN if serves else RegionPhase.EMPTY
    return RegionPhase.DEGRADED if snapshot.route is None else told.phase


def _problems(config: RegionConfig, told: RegionState, snapshot: GroupsSnapshot) -> Iterator[str]:
    yield from (str(each) for each in snapshot.foreign_objects)
    if snapshot.rollout_serves:
        yield f"a Rollout moves the Services of {config.name}"
    if told.stable is None:
        yield from (f"version {each.version}: {snapshot.missing(each)}" for each in snapshot.groups)
        return
    if snapshot.route is None:
        yield f"{snapshot.routes.resource.kind} {config.route} is gone: nobody can be sent to a canary"
    split = snapshot.placement.split
    for role, version in ((Role.STABLE, split.stable), (Role.CANARY, split.canary), (Role.PREVIOUS, split.previous)):
        which = snapshot.of_version(version) if version else None
        seen = getattr(told, role)
        if version and (which is None or not which.is_complete or (seen and seen.problem)):
            missing = snapshot.missing(which) if which else "nothing of it runs"
            yield f"{role} (version {version}): {(seen and seen.problem) or missing}"
