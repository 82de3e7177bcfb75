"""A rollout while it changes: watched, viewed, and waited for until somebody has to act or nobody has to any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from rollouts.argo.model import is_pause_timed
from rollouts.argo.state import (
    STUCK_AFTER_SECONDS,
    ControllerLag,
    HealthState,
    RolloutHealth,
    controller_lag,
    health_of,
)
from rollouts.argo.view import OwnedResources, RolloutView, rollout_view
from rollouts.argo.workload import selector_of, workload_of
from rollouts.errors import NotPossible
from rollouts.kube.model import Resource, WatchEventType
from rollouts.kube.ports import ClusterReader
from rollouts.kube.resources import ANALYSIS_RUNS, EXPERIMENTS, PODS, REPLICA_SETS, ROLLOUTS
from tidegate.core.clock import Clock
from tidegate.core.model import Json, Value

Objects = tuple[Json, ...]


@dataclass(frozen=True)
class WatchTarget:
    """What to watch."""

    resource: Resource
    labels: str = ""
    fields: str = ""


@dataclass
class _Collections:
    """The objects of each watched collection."""

    objects: dict[Resource, dict[str, Json]]
    unlisted: set[Resource]
    """Those whose first list has not come yet."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def snapshot(self) -> dict[Resource, Objects]:
        return {resource: tuple(found.values()) for resource, found in self.objects.items()}


async def follow(
    cluster: ClusterReader, clock: Clock, targets: Sequence[WatchTarget], *, every_seconds: float
) -> AsyncGenerator[Mapping[Resource, Objects], None]:
    """All objects: first once every collection was listed, then at each change and at least `every_seconds`.

    Changes between two reads are combined. Raises what the watches raise.
    """
    resources = [each.resource for each in targets]
    collections = _Collections({resource: {} for resource in resources}, set(resources))
    feeds = [asyncio.create_task(_feed(cluster, each, collections)) for each in targets]
    try:
        while True:
            await _change(clock, collections, feeds, every_seconds)
            if not collections.unlisted:
                yield collections.snapshot()
    finally:
        await _end(feeds)


async def _feed(cluster: ClusterReader, targets: WatchTarget, collections: _Collections) -> None:
    objects = collections.objects[targets.resource]
    async with aclosing(cluster.watch(targets.resource, labels=targets.labels, fields=targets.fields)) as changes:
        async for change in changes:
            match change.kind:
                case WatchEventType.BOOKMARK:
                    continue
                case WatchEventType.SYNCED:
                    collections.unlisted.discard(targets.resource)
                case WatchEventType.DELETED:
                    objects.pop(_key(change.object), None)
                case _:
                    objects[_key(change.object)] = change.object
            collections.changed.set()


async def _change(clock: Clock, collections: _Collections, feeds: Sequence[asyncio.Task[None]], seconds: float) -> None:
    changed, late = asyncio.create_task(collections.changed.wait()), asyncio.create_task(clock.sleep(seconds))
    try:
        await asyncio.wait((changed, late, *feeds), return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _end((changed, late))
    collections.changed.clear()
    for feed in feeds:
        if feed.done():
            feed.result()


async def _end(tasks: Sequence[asyncio.Task[object]] | Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _key(thing: Json) -> str:
    return f"{thing['metadata'].get('namespace', '')}/{thing['metadata']['name']}"


POLL_SECONDS = 1.0
"""How often the state is read without an event: being stuck is none."""


class WaitOutcome(StrEnum):
    """Why the waiting ended."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    PAUSED = "paused"
    """Until somebody says so; a pause that ends by itself is waited for."""
    INCONCLUSIVE = "paused-inconclusive"
    STUCK = "stuck"
    TIMEOUT = "timeout"
    """Still on its way when the time was over."""
    PROGRESSING = "progressing"
    """Nobody waited."""


class WaitResult(Value):
    """How a rollout ended up."""

    outcome: WaitOutcome
    health: RolloutHealth
    rollout: Json
    waited_seconds: float


class RolloutObservation(Value):
    """One rollout at one moment."""

    rollout: Json
    health: RolloutHealth
    at: datetime


async def observations(
    cluster: ClusterReader, clock: Clock, name: str, *, stuck_after_seconds: float = STUCK_AFTER_SECONDS
) -> AsyncGenerator[RolloutObservation, None]:
    """One rollout with its health, at each change and each second.

    Raises:
        NotFound: when there is none at the beginning.
        NotPossible: when it is deleted.
    """
    await cluster.get(ROLLOUTS, name)
    lag: ControllerLag | None = None
    targets = WatchTarget(ROLLOUTS, fields=f"metadata.name={name}")
    async with aclosing(follow(cluster, clock, [targets], every_seconds=POLL_SECONDS)) as states:
        async for state in states:
            if not state[ROLLOUTS]:
                raise NotPossible(f"{name} was deleted", hint="find out who deleted it, and apply it again")
            observation, lag = await observe(
                cluster, clock, state[ROLLOUTS][0], before=lag, stuck_after_seconds=stuck_after_seconds
            )
            yield observation


async def observe(
    cluster: ClusterReader,
    clock: Clock,
    rollout: Json,
    *,
    before: ControllerLag | None = None,
    stuck_after_seconds: float = STUCK_AFTER_SECONDS,
) -> tuple[RolloutObservation, ControllerLag | None]:
    """Its health now, and the lag to hand to the next look."""
    workload, now = await workload_of(cluster, rollout), clock.now()
    lag = controller_lag(rollout, now=now, before=before, workload=workload)
    health = health_of(
        rollout,
        now=now,
        lagging_since=lag.since if lag else None,
        stuck_after_seconds=stuck_after_seconds,
        workload=workload,
    )
    return RolloutObservation(rollout=rollout, health=health, at=now), lag


async def wait_for_rollout(
    cluster: ClusterReader,
    clock: Clock,
    name: str,
    *,
    within_seconds: float,
    stuck_after_seconds: float = STUCK_AFTER_SECONDS,
) -> WaitResult:
    """Wait until it is healthy, needs somebody, or the time is over; with 0 seconds look once.

    Raises:
        NotFound: when there is no such rollout.
        NotPossible: when it is deleted meanwhile.
    """
    begun = clock.monotonic()
    async with aclosing(observations(cluster, clock, name, stuck_after_seconds=stuck_after_seconds)) as stream:
        async for observation in stream:
            waited = clock.monotonic() - begun
            outcome = wait_outcome(observation) if within_seconds else WaitOutcome(observation.health.state)
            if outcome is None and waited >= within_seconds:
                outcome = WaitOutcome.TIMEOUT
            if outcome:
                return WaitResult(
                    outcome=outcome, health=observation.health, rollout=observation.rollout, waited_seconds=waited
                )
    raise AssertionError("a watch never ends by itself")


def wait_outcome(observation: RolloutObservation) -> WaitOutcome | None:
    """Why not to wait any longer; None while it goes on by itself."""
    if observation.health.state is HealthState.PROGRESSING:
        return None
    if observation.health.state is HealthState.PAUSED and is_pause_timed(observation.rollout):
        return None
    return WaitOutcome(observation.health.state)


async def rollout_views(
    cluster: ClusterReader, clock: Clock, name: str, *, stuck_after_seconds: float = STUCK_AFTER_SECONDS
) -> AsyncGenerator[RolloutView, None]:
    """One at each change, and one each second.

    Raises:
        NotFound: when there is no such rollout at the beginning.
        NotPossible: when it is deleted.
    """
    rollout = await cluster.get(ROLLOUTS, name)
    workload = await workload_of(cluster, rollout)
    labels = selector_of(rollout, workload)
    targets = (
        WatchTarget(ROLLOUTS, fields=f"metadata.name={name}"),
        WatchTarget(REPLICA_SETS, labels=labels),
        WatchTarget(PODS, labels=labels),
        WatchTarget(ANALYSIS_RUNS),
        WatchTarget(EXPERIMENTS),
    )
    lag: ControllerLag | None = None
    async with aclosing(follow(cluster, clock, targets, every_seconds=POLL_SECONDS)) as states:
        async for state in states:
            if not state[ROLLOUTS]:
                raise NotPossible(f"{name} was deleted", hint="find out who deleted it, and apply it again")
            observation, lag = await observe(
                cluster, clock, state[ROLLOUTS][0], before=lag, stuck_after_seconds=stuck_after_seconds
            )
            owned = OwnedResources(
                rollout=observation.rollout,
                workload=workload,
                replica_sets=state[REPLICA_SETS],
                pods=state[PODS],
                analysis_runs=state[ANALYSIS_RUNS],
                experiments=state[EXPERIMENTS],
            )
            yield rollout_view(owned, observation.health, now=observation.at)
