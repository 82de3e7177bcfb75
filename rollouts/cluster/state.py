"""What a snapshot of a Rollout's region says: the state of a fleet, and why a wait for something is over. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rollouts.argo.model import STUCK_AFTER_SECONDS, HealthState, likely_cause, was_aborted_by_hand
from rollouts.cluster.model import Revision
from rollouts.cluster.snapshot import RegionSnapshot
from rollouts.errors import EngineDidNotStart, FleetError, NotConfirmed, NotPossible, Overruled
from rollouts.kube.objects import condition, pod_problems, start_failure
from rollouts.manifests.ownership import last_writer
from rollouts.model import EngineSet, RegionPhase, RegionState, Role


def region_state(snapshot: RegionSnapshot) -> RegionState:
    """The region as an outsider sees it."""
    config = snapshot.place
    if snapshot.foreign_mover or snapshot.stable is None:
        return _without_stable(snapshot)
    stable = _arm(Role.STABLE, snapshot.stable, config.stable_url, snapshot)
    canary = _canary(snapshot)
    told = "; ".join(_problems(snapshot))
    broken = snapshot.health.state in {HealthState.STUCK, HealthState.DEGRADED} or snapshot.route is None
    if broken or not stable.ready or (canary and not canary.ready):
        phase = RegionPhase.DEGRADED
    else:
        phase = RegionPhase.TRIAL if canary else RegionPhase.STEADY
    return RegionState(
        region=config.region,
        phase=phase,
        entry=config.entry,
        stable=stable,
        canary=canary,
        previous=_arm(Role.PREVIOUS, snapshot.previous, "", snapshot) if snapshot.previous else None,
        warm=tuple(snapshot.warm),
        weight=snapshot.weight if snapshot.trial else 0,
        mirror=snapshot.mirror if snapshot.trial else 0,
        problem=told or None,
        foreign_change=snapshot.foreign_change,
        route_writer=last_writer(snapshot.route) if snapshot.route else "",
        foreign_objects=snapshot.foreign_objects,
        taken_away=abort_by_others(snapshot),
        unattended=snapshot.unattended,
    )


def _without_stable(snapshot: RegionSnapshot) -> RegionState:
    """Empty only where no pod can serve: who reads `empty` may bring something up there."""
    pods, foreign = int(snapshot.argo.status.get("replicas") or 0), snapshot.foreign_mover is not None
    told = [str(each) for each in snapshot.foreign_objects]
    if pods:
        told.append(f"its {pods} pods may serve" if foreign else f"{pods} pods, and no stable version")
    if snapshot.rollout is not None and not foreign:
        # What keeps a first version from becoming stable.
        told.append(pod_problems(snapshot.pods) or snapshot.health.message)
    return RegionState(
        region=snapshot.place.region,
        phase=RegionPhase.UNKNOWN if pods or foreign else RegionPhase.EMPTY,
        entry=snapshot.place.entry,
        problem="; ".join(filter(None, told)) or None,
        foreign_objects=snapshot.foreign_objects,
    )


def rollback_reason(snapshot: RegionSnapshot) -> str:
    """Why the region gave up its trial by itself, in one line; empty when it did not."""
    if snapshot.trial is None or not snapshot.argo.aborted:
        return ""
    if told := unfinished_rollback(snapshot):
        return told
    why = snapshot.health.cause or snapshot.health.message or "somebody aborted it"
    # The phase is Degraded, `RolloutAborted`, in either case.
    left = f", and {snapshot.weight} % of users are on it still" if snapshot.weight else ""
    return f"version {snapshot.trial.version} was aborted in the region itself{left}: {why}"


def require_canary(snapshot: RegionSnapshot, operation: str) -> tuple[str, str]:
    """Stable's and canary's versions, of a trial that can take traffic; `NotPossible` when there is none."""
    if snapshot.trial is None or snapshot.stable is None:
        raise NotPossible(f"there is no canary to {operation}", hint="deploy one first")
    down = f"none of its {snapshot.trial.wanted} engines is ready" if snapshot.is_canary_down else ""
    if why := rollback_reason(snapshot) or down:
        raise NotPossible(
            f"the canary, version {snapshot.trial.version}, is down: cannot {operation} it",
            hint="--debug shows why; roll it back with `tidegate rollback`",
            detail=why,
        )
    return snapshot.stable.version, snapshot.trial.version


def abort_by_others(snapshot: RegionSnapshot) -> str:
    """That somebody ended the trial, who says nothing of the version by that; empty when nobody did."""
    if snapshot.unattended:
        return str(snapshot.unattended)
    if snapshot.trial is None or not was_aborted_by_hand(snapshot.argo):
        return ""
    return f"somebody aborted the trial of version {snapshot.trial.version}"


def unfinished_rollback(snapshot: RegionSnapshot) -> str:
    """Who serves whom while a way back waits for its controller, and what to do; empty when it does not."""
    stable, trial = snapshot.stable, snapshot.trial
    if not (stable and trial and snapshot.unprocessed_change):
        return ""
    asked = (snapshot.asked[0], snapshot.asked[2])
    back = trial if snapshot.argo.aborted else stable
    if asked not in {(stable.version, stable.attempt), (back.version, back.attempt)}:
        return ""
    users = f"all users are on version {stable.version}"
    if not snapshot.is_on_stable:
        engines = f"the stable has {stable.available} of {snapshot.argo.replicas} engines"
        users = f"{snapshot.weight} % of users stay on version {trial.version}: {engines}"
    why = f"the Argo Rollouts controller has not reacted ({snapshot.unprocessed_change}): {likely_cause(snapshot.argo)}"
    return f"{users}, and {why}; once it runs, `tidegate rollback` finishes the way back"


def _canary(snapshot: RegionSnapshot) -> EngineSet | None:
    if snapshot.trial is None:
        return None
    arm = _arm(Role.CANARY, snapshot.trial, snapshot.place.canary_url, snapshot)
    # It stays visible, so that the one who delivers learns why it has no users any more.
    back = rollback_reason(snapshot)
    if not back and snapshot.weight == 0 and snapshot.argo.lost_users:
        # It may be up again by now: engines that end and start between two looks serve nobody well.
        back = arm.problem or "none of its engines was ready, so that Argo Rollouts sends its users to the stable"
    return arm.model_copy(update={"ready": False, "problem": back}) if back else arm


def _arm(role: Role, which: Revision, url: str, snapshot: RegionSnapshot) -> EngineSet:
    up = which.available > 0
    return EngineSet(
        role=role,
        version=which.version,
        digest=which.digest,
        url=url,
        ready=up,
        problem=None if up else _missing(which, snapshot),
        engines=which.available,
    )


def _missing(which: Revision, snapshot: RegionSnapshot) -> str:
    return pod_problems(snapshot.pods_of(which)) or f"{which.available} of {which.wanted} engines are ready"


def _problems(snapshot: RegionSnapshot) -> Iterator[str]:
    yield from (str(each) for each in snapshot.foreign_objects)
    if snapshot.route is None:
        yield f"{snapshot.place.routes.resource.kind} {snapshot.place.route} is gone: nobody can be sent to a canary"
    back = rollback_reason(snapshot) or unfinished_rollback(snapshot)
    if back:
        yield back
    elif snapshot.health.state in {HealthState.STUCK, HealthState.DEGRADED}:
        yield ": ".join(filter(None, (snapshot.health.message, snapshot.health.cause)))
    for role, which in ((Role.STABLE, snapshot.stable), (Role.CANARY, snapshot.trial)):
        if which and not which.is_complete and not (role is Role.CANARY and back):
            yield f"{role} (version {which.version}): {_missing(which, snapshot)}"


def how_to_continue(name: str) -> str:
    """What lets a Rollout go that a person holds; the plugin's `promote` would skip the step that runs, too."""
    return f"""continue it: kubectl patch rollout {name} --type merge -p '{{"spec": {{"paused": false}}}}'"""


def refuse_hopeless(
    snapshot: RegionSnapshot, what: str, *, first: RegionSnapshot, waited: float, going_back: bool
) -> None:
    """End a wait that time alone cannot end; `going_back` the fate of the trial does not matter.

    `Overruled` says that somebody ended the trial, or asks for another version than the `first` snapshot.
    """
    name, health = snapshot.argo.name, snapshot.health
    # Not sooner: a controller that was away may just have come back.
    if waited >= STUCK_AFTER_SECONDS and health.state is HealthState.STUCK:
        raise NotConfirmed(f"{name} is stuck: {health.message}", hint=health.cause)
    if going_back:
        return
    # Who asked for the same, such as a GitOps controller that is ahead of us, does no harm.
    if snapshot.foreign_change and snapshot.foreign_change.version != first.asked[0]:
        raise Overruled(snapshot.foreign_change.reason)
    if snapshot.argo.paused_by_spec:
        raise NotPossible(f"{name} is paused by hand: {what} cannot happen", hint=how_to_continue(name))
    # An abort stands in the status until the controller sees what was asked for since.
    if snapshot.observed and (back := rollback_reason(snapshot)):
        raise Overruled(back) if abort_by_others(snapshot) else FleetError(back)
    coming = snapshot.trial or (None if snapshot.stable else snapshot.revisions[0] if snapshot.revisions else None)
    died = start_failure(snapshot.pods_of(coming))
    if coming and died:
        raise EngineDidNotStart(
            f"version {coming.version} does not start: {died.splitlines()[-1]}",
            hint="--debug shows the end of its log",
            detail=died,
        )
    if health.state is HealthState.DEGRADED:
        words = ": ".join(filter(None, (health.message, health.cause)))
        raise EngineDidNotStart(
            f"{name} is degraded: {words}", hint="--debug shows its pods", detail=missing_pods(snapshot) or None
        )


def missing_pods(snapshot: RegionSnapshot) -> str:
    """What keeps pods from being ready, or from being at all, such as a quota; empty when nothing is known."""
    refused = [found for each in snapshot.replica_sets if (found := condition(each, "ReplicaFailure"))]
    words = (str(each.get("message") or each.get("reason")) for each in refused if each.get("status") == "True")
    return "; ".join(filter(None, (pod_problems(snapshot.pods), *words)))


def timeout_error(snapshot: RegionSnapshot, what: str, within: float) -> FleetError:
    """What to say when a deadline is over: engines that are missing, or a controller that does not move."""
    missing = missing_pods(snapshot)
    message = f"{snapshot.argo.name}: {what} did not come about within {within:.0f} s"
    if missing:
        return EngineDidNotStart(f"{message}: {missing.splitlines()[-1]}", detail=missing)
    said = "; ".join(filter(None, (snapshot.health.message, snapshot.health.cause))) or snapshot.health.state
    return FleetError(f"{message}; it says: {said}", hint="`tidegate doctor` looks for the cause")
