"""Observes a region: takes snapshots, waits until they are as desired, and reports them as the state of a fleet.

It polls every few seconds and does not watch: a snapshot needs nothing from those before, so neither a stream that was
cut nor an event that was missed can leave an operation waiting for what happened already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from rollouts.argo.state import (
    STUCK_AFTER_SECONDS,
    HealthState,
    likely_cause,
    pending_reaction,
    was_aborted_by_hand,
)
from rollouts.argo.waking import Waker
from rollouts.cluster.carrier import Fence
from rollouts.cluster.model import RegionConfig, Revision
from rollouts.cluster.reference import RegionNotes, with_workload
from rollouts.cluster.snapshot import RegionSnapshot
from rollouts.errors import EngineDidNotStart, FleetError, NotConfirmed, NotPossible, Overruled
from rollouts.kube.client import KubeClient
from rollouts.kube.model import Resource
from rollouts.kube.objects import at, written
from rollouts.kube.pods import pod_problems, start_failure
from rollouts.kube.resources import DEPLOYMENTS, PODS, REPLICA_SETS, ROLLOUTS
from rollouts.kube.retry import time_left
from rollouts.manifests.conventions import NOTES
from rollouts.manifests.ownership import last_writer
from rollouts.model import Engine, EngineSet, RegionPhase, RegionState, Role
from tidegate.core.clock import Clock
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY


def region_state(config: RegionConfig, snapshot: RegionSnapshot) -> RegionState:
    """The region as an outsider sees it."""
    if snapshot.foreign_rollout or snapshot.stable is None:
        return _without_stable(config, snapshot)
    stable = _arm(Role.STABLE, snapshot.stable, config.stable_url, snapshot)
    canary = _canary(config, snapshot)
    told = "; ".join(_problems(config, snapshot))
    return RegionState(
        region=config.region,
        phase=_phase(snapshot, stable, canary),
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


def _without_stable(config: RegionConfig, snapshot: RegionSnapshot) -> RegionState:
    """Empty only where no pod can serve: who reads `empty` may bring something up there."""
    pods = int(snapshot.argo.status.get("replicas") or 0)
    told = [str(each) for each in snapshot.foreign_objects]
    if pods:
        told.append(f"its {pods} pods may serve" if snapshot.foreign_rollout else f"{pods} pods, and no stable version")
    if unborn := None if snapshot.foreign_rollout else _unborn(snapshot):
        told.append(unborn)
    return RegionState(
        region=config.region,
        phase=RegionPhase.UNKNOWN if pods or snapshot.foreign_rollout else RegionPhase.EMPTY,
        entry=config.entry,
        problem="; ".join(told) or None,
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
    aborted = snapshot.argo.aborted and asked == (trial.version, trial.attempt)
    if not aborted and asked != (stable.version, stable.attempt):
        return ""
    users = f"all users are on version {stable.version}"
    if not snapshot.is_on_stable:
        engines = f"the stable has {stable.available} of {snapshot.argo.replicas} engines"
        users = f"{snapshot.weight} % of users stay on version {trial.version}: {engines}"
    why = f"the Argo Rollouts controller has not reacted ({snapshot.unprocessed_change}): {likely_cause(snapshot.argo)}"
    return f"{users}, and {why}; once it runs, `tidegate rollback` finishes the way back"


def _canary(config: RegionConfig, snapshot: RegionSnapshot) -> EngineSet | None:
    if snapshot.trial is None:
        return None
    arm = _arm(Role.CANARY, snapshot.trial, config.canary_url, snapshot)
    # It stays visible, so that the one who delivers learns why it has no users any more.
    back = rollback_reason(snapshot)
    if not back and snapshot.weight == 0 and snapshot.argo.lost_users:
        # It may be up again by now: engines that end and start between two looks serve nobody well.
        back = arm.problem or "none of its engines was ready, so that Argo Rollouts sends its users to the stable"
    return arm.model_copy(update={"ready": False, "problem": back}) if back else arm


def _arm(role: Role, which: Revision, url: str, snapshot: RegionSnapshot) -> EngineSet:
    up = which.available > 0
    why = pod_problems(snapshot.pods_of(which)) or f"{which.available} of {which.wanted} engines are ready"
    return EngineSet(
        role=role,
        version=which.version,
        digest=which.digest,
        url=url,
        ready=up,
        problem=None if up else why,
        engines=which.available,
    )


def _phase(snapshot: RegionSnapshot, stable: EngineSet, canary: EngineSet | None) -> RegionPhase:
    broken = snapshot.health.state in {HealthState.STUCK, HealthState.DEGRADED} or snapshot.route is None
    if broken or not stable.ready or (canary and not canary.ready):
        return RegionPhase.DEGRADED
    return RegionPhase.TRIAL if canary else RegionPhase.STEADY


def _problems(config: RegionConfig, snapshot: RegionSnapshot) -> Iterator[str]:
    yield from (str(each) for each in snapshot.foreign_objects)
    if snapshot.route is None:
        yield f"{snapshot.routes.resource.kind} {config.route} is gone: nobody can be sent to a canary"
    back = rollback_reason(snapshot) or unfinished_rollback(snapshot)
    if back:
        yield back
    elif snapshot.health.state in {HealthState.STUCK, HealthState.DEGRADED}:
        yield ": ".join(part for part in (snapshot.health.message, snapshot.health.cause) if part)
    for role, which in ((Role.STABLE, snapshot.stable), (Role.CANARY, snapshot.trial)):
        if which and not which.is_complete and not (role is Role.CANARY and back):
            missing = f"{which.available} of {which.wanted} engines are ready"
            yield f"{role} (version {which.version}): {pod_problems(snapshot.pods_of(which)) or missing}"


def _unborn(snapshot: RegionSnapshot) -> str | None:
    """What keeps a first version from becoming stable."""
    if snapshot.rollout is None:
        return None
    return pod_problems(snapshot.pods) or snapshot.health.message or None


def moving_users(config: RegionConfig) -> tuple[tuple[Resource, str], ...]:
    """The objects by which users of a Rollout are moved."""
    workload = ((DEPLOYMENTS, config.workload),) if config.workload else ()
    return (ROLLOUTS, config.rollout), *workload, (config.routes.resource, config.route)


POLL_SECONDS = 1.0
"""Between two snapshots while an operation is in progress."""


class RegionObserver:
    """Takes snapshots of one region."""

    def __init__(
        self,
        config: RegionConfig,
        cluster: KubeClient,
        clock: Clock,
        fence: Fence,
        *,
        waker: Waker | None = None,
        engines: Sequence[Engine] = (),
    ) -> None:
        """`waker` is for whoever waits for what was written; nobody else writes.

        `engines` of a Rollout of others are known by a plan, noted there or not.
        """
        self._engines = engines
        self._waker = waker
        self._config = config
        self._cluster = cluster
        self._routes = config.routes
        self._clock = clock
        self._fence = fence

    async def observe(self) -> RegionSnapshot:
        """The region as it is now.

        Raises:
            NotTheCarrier: it is somebody else's by now, who replaced us.
            FleetError: when the API server does not answer, or does not let us see.
        """
        # First: whatever it speaks of is there in what is read after it.
        rollout = await self._cluster.find(ROLLOUTS, self._config.rollout)
        workload = await self._cluster.find(DEPLOYMENTS, name) if (name := self._config.workload) else None
        rollout = with_workload(rollout, workload) if rollout else None
        ours = self._pods(rollout)
        sets, route, said = await asyncio.gather(
            self._cluster.list(REPLICA_SETS, labels=ours),
            self._cluster.find(self._routes.resource, self._config.route),
            self._fence.said(NOTES) if self._config.theirs else _nothing(),
        )
        # Whatever is written is written onto these, or decided by them.
        for each in (rollout, workload, route):
            self._fence.allows(each)
        snapshot = RegionSnapshot(
            at=self._clock.now(),
            config=self._config,
            rollout=rollout,
            workload=workload,
            replica_sets=sets.items,
            route=route,
            notes=self._known(RegionNotes.read(said)),
        )
        if rollout is None or snapshot.is_whole:
            return snapshot
        pods = await self._cluster.list(PODS, labels=ours)
        return replace(snapshot, pods=pods.items)

    async def until(
        self, holds: Callable[[RegionSnapshot], bool], what: str, *, within: float, going_back: bool = False
    ) -> RegionSnapshot:
        """The first snapshot for which `holds` is true; `what` says in an error what was waited for.

        With `going_back` the fate of the trial does not matter.

        Raises:
            EngineDidNotStart: engines do not come up, or not in time.
            NotPossible: somebody holds the Rollout, or asks it for another version meanwhile.
            FleetError: the region took its trial back, or its controller does not react.
        """
        begun = self._clock.monotonic()
        first: RegionSnapshot | None = None
        while True:
            snapshot = await self.observe()
            if holds(snapshot):
                return snapshot
            first = first or snapshot
            waited = self._clock.monotonic() - begun
            # Not sooner: a controller that was away may just have come back.
            if waited >= STUCK_AFTER_SECONDS:
                refuse_stuck(snapshot)
            if not going_back:
                refuse_overruled(snapshot, first)
                refuse_hopeless(snapshot, what)
            if waited >= within or time_left() <= 0:
                raise timeout_error(snapshot, what, waited)
            if self._waker and snapshot.rollout and pending_reaction(snapshot.rollout):
                await self._waker.look(snapshot.rollout)
            await self._clock.sleep(POLL_SECONDS)

    def _pods(self, rollout: Json | None) -> str:
        """By which the pods of all versions are selected, and their ReplicaSets."""
        if self._config.theirs is None:
            return f"{DELIVERY}={self._config.name}"
        asked = at(rollout, "spec", "selector", "matchLabels", default={})
        return written(asked)

    def _known(self, notes: RegionNotes) -> RegionNotes:
        """With what the plan says of the versions, for a Rollout of which nothing was noted yet."""
        return notes.knowing(self._config.theirs, *self._engines) if self._config.theirs else notes


async def _nothing() -> str:
    return ""


def refuse_stuck(snapshot: RegionSnapshot) -> None:
    """End a wait for a controller that does not react.

    Raises:
        NotConfirmed: with the likely cause.
    """
    if snapshot.health.state is HealthState.STUCK:
        raise NotConfirmed(f"{snapshot.argo.name} is stuck: {snapshot.health.message}", hint=snapshot.health.cause)


def refuse_overruled(snapshot: RegionSnapshot, first: RegionSnapshot) -> None:
    """End a wait for a version that the first snapshot asked for, and the current one does not.

    Raises:
        Overruled: somebody else asks for another one.
    """
    # Who asked for the same, such as a GitOps controller that is ahead of us, does no harm.
    if snapshot.foreign_change and snapshot.foreign_change.version != first.asked[0]:
        raise Overruled(snapshot.foreign_change.reason)


def how_to_continue(name: str) -> str:
    """What lets a Rollout go that a person holds; the plugin's `promote` would skip the step that runs, too."""
    return f"""continue it: kubectl patch rollout {name} --type merge -p '{{"spec": {{"paused": false}}}}'"""


def refuse_hopeless(snapshot: RegionSnapshot, what: str) -> None:
    """End a wait for a trial that time alone cannot end.

    Raises:
        Overruled: somebody ended the trial by hand, or the region's guard did.
        EngineDidNotStart, NotPossible, FleetError: as `RegionObserver.until`.
    """
    name = snapshot.argo.name
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
    if snapshot.health.state is HealthState.DEGRADED:
        words = (
            f"{snapshot.health.message}: {snapshot.health.cause}" if snapshot.health.cause else snapshot.health.message
        )
        raise EngineDidNotStart(
            f"{name} is degraded: {words}", hint="--debug shows its pods", detail=pod_problems(snapshot.pods) or None
        )


def timeout_error(snapshot: RegionSnapshot, what: str, within: float) -> FleetError:
    """What to say when a deadline is over: engines that are missing, or a controller that does not move."""
    missing = pod_problems(snapshot.pods)
    message = f"{snapshot.argo.name}: {what} did not come about within {within:.0f} s"
    if missing:
        return EngineDidNotStart(f"{message}: {missing.splitlines()[-1]}", detail=missing)
    said = "; ".join(part for part in (snapshot.health.message, snapshot.health.cause) if part)
    return FleetError(
        f"{message}; it says: {said or snapshot.health.state}", hint="`tidegate doctor` looks for the cause"
    )
