"""A look at a region's objects becomes the state that every fleet tells. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rollouts.argo.health import State, likely_cause
from rollouts.cluster.place import Place
from rollouts.cluster.pods import problems
from rollouts.cluster.revisions import Revision
from rollouts.cluster.seen import Seen
from rollouts.manifests.belonging import last_writer
from rollouts.model import Arm, Phase, RegionState, Role


def state_of(place: Place, seen: Seen) -> RegionState:
    """The region as an outsider sees it."""
    if seen.rollout_of_others or seen.stable is None:
        return _without_stable(place, seen)
    stable = _arm(Role.STABLE, seen.stable, place.stable_url, seen)
    canary = _canary(place, seen)
    told = "; ".join(_problems(place, seen))
    return RegionState(
        region=place.region,
        phase=_phase(seen, stable, canary),
        entry=place.entry,
        stable=stable,
        canary=canary,
        previous=_arm(Role.PREVIOUS, seen.previous, "", seen) if seen.previous else None,
        warm=tuple(seen.warm),
        weight=seen.weight if seen.trial else 0,
        mirror=seen.mirror if seen.trial else 0,
        problem=told or None,
        foreign_wish=seen.foreign_wish,
        route_writer=last_writer(seen.route) if seen.route else "",
        strangers=seen.strangers,
    )


def _without_stable(place: Place, seen: Seen) -> RegionState:
    """Empty only where no pod can serve: who reads `empty` may bring something up there."""
    pods = int(seen.argo.status.get("replicas") or 0)
    told = [str(each) for each in seen.strangers]
    if pods:
        told.append(f"its {pods} pods may serve" if seen.rollout_of_others else f"{pods} pods, and no stable version")
    if unborn := None if seen.rollout_of_others else _unborn(seen):
        told.append(unborn)
    return RegionState(
        region=place.region,
        phase=Phase.UNKNOWN if pods or seen.rollout_of_others else Phase.EMPTY,
        entry=place.entry,
        problem="; ".join(told) or None,
        strangers=seen.strangers,
    )


def taken_back(seen: Seen) -> str:
    """Why the region gave up its trial by itself, in one line; empty when it did not."""
    if seen.trial is None or not seen.argo.aborted:
        return ""
    if told := unfinished(seen):
        return told
    why = seen.health.cause or seen.health.message or "somebody aborted it"
    return f"version {seen.trial.version} was taken back in the region itself: {why}"


def unfinished(seen: Seen) -> str:
    """Who serves whom while a way back waits for its controller, and what to do; empty when it does not."""
    stable, trial = seen.stable, seen.trial
    if not (stable and trial and seen.silent):
        return ""
    asked = (seen.asked[0], seen.asked[2])
    aborted = seen.argo.aborted and asked == (trial.version, trial.attempt)
    if not aborted and asked != (stable.version, stable.attempt):
        return ""
    users = f"all users are on version {stable.version}"
    if not seen.on_stable:
        engines = f"the stable has {stable.available} of {seen.argo.replicas} engines"
        users = f"{seen.weight} % of users stay on version {trial.version}: {engines}"
    why = f"the Argo Rollouts controller has not reacted ({seen.silent}): {likely_cause(seen.argo)}"
    return f"{users}, and {why}; once it runs, `tidegate rollback` finishes the way back"


def _canary(place: Place, seen: Seen) -> Arm | None:
    if seen.trial is None:
        return None
    arm = _arm(Role.CANARY, seen.trial, place.canary_url, seen)
    # It stays visible, so that whoever delivers learns why it has no users any more.
    back = taken_back(seen)
    return arm.model_copy(update={"ready": False, "problem": back}) if back else arm


def _arm(role: Role, which: Revision, url: str, seen: Seen) -> Arm:
    up = which.available > 0
    why = problems(seen.pods_of(which)) or f"{which.available} of {which.wanted} engines are ready"
    return Arm(
        role=role,
        version=which.version,
        digest=which.digest,
        url=url,
        ready=up,
        problem=None if up else why,
    )


def _phase(seen: Seen, stable: Arm, canary: Arm | None) -> Phase:
    broken = seen.health.state in {State.STUCK, State.DEGRADED} or seen.route is None
    if broken or not stable.ready or (canary and not canary.ready):
        return Phase.DEGRADED
    return Phase.TRIAL if canary else Phase.STEADY


def _problems(place: Place, seen: Seen) -> Iterator[str]:
    yield from (str(each) for each in seen.strangers)
    if seen.route is None:
        yield f"{seen.routes.resource.kind} {place.name} is gone: nobody can be sent to a canary"
    back = taken_back(seen) or unfinished(seen)
    if back:
        yield back
    elif seen.health.state in {State.STUCK, State.DEGRADED}:
        yield ": ".join(part for part in (seen.health.message, seen.health.cause) if part)
    for role, which in ((Role.STABLE, seen.stable), (Role.CANARY, seen.trial)):
        if which and not which.whole and not (role is Role.CANARY and back):
            missing = f"{which.available} of {which.wanted} engines are ready"
            yield f"{role} (version {which.version}): {problems(seen.pods_of(which)) or missing}"


def _unborn(seen: Seen) -> str | None:
    """What keeps a first version from becoming stable."""
    if seen.rollout is None:
        return None
    return problems(seen.pods) or seen.health.message or None
