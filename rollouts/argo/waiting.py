"""Waits until somebody has to look at a rollout, or nobody has to any more."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from enum import StrEnum

from rollouts.argo.following import Watched, follow
from rollouts.argo.health import STUCK_AFTER_SECONDS, Health, Lag, State, health_of, lag_of
from rollouts.argo.pausing import ends_by_itself
from rollouts.argo.sources import workload_of
from rollouts.errors import NotPossible
from rollouts.kube.model import Json
from rollouts.kube.ports import ClusterReader
from rollouts.kube.resources import ROLLOUTS
from tidegate.core.clock import Clock
from tidegate.core.model import Value

LOOK_SECONDS = 1.0
"""How often time alone is looked at: being stuck is no event."""


class Ending(StrEnum):
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


class Settled(Value):
    """How a rollout ended up."""

    outcome: Ending
    health: Health
    rollout: Json
    waited_seconds: float


class Look(Value):
    """One rollout at one moment."""

    rollout: Json
    health: Health
    at: datetime


async def looks(
    cluster: ClusterReader, clock: Clock, name: str, *, stuck_after_seconds: float = STUCK_AFTER_SECONDS
) -> AsyncGenerator[Look, None]:
    """One rollout with its health, at each change and each second.

    Raises:
        NotFound: when there is none at the beginning.
        NotPossible: when it is deleted.
    """
    await cluster.get(ROLLOUTS, name)
    lag: Lag | None = None
    watched = Watched(ROLLOUTS, fields=f"metadata.name={name}")
    async with aclosing(follow(cluster, clock, [watched], every_seconds=LOOK_SECONDS)) as states:
        async for state in states:
            if not state[ROLLOUTS]:
                raise NotPossible(f"{name} was deleted")
            look, lag = await look_at(
                cluster, clock, state[ROLLOUTS][0], before=lag, stuck_after_seconds=stuck_after_seconds
            )
            yield look


async def look_at(
    cluster: ClusterReader,
    clock: Clock,
    rollout: Json,
    *,
    before: Lag | None = None,
    stuck_after_seconds: float = STUCK_AFTER_SECONDS,
) -> tuple[Look, Lag | None]:
    """Its health now, and the lag to hand to the next look."""
    workload, now = await workload_of(cluster, rollout), clock.now()
    lag = lag_of(rollout, now=now, before=before, workload=workload)
    health = health_of(
        rollout,
        now=now,
        lagging_since=lag.since if lag else None,
        stuck_after_seconds=stuck_after_seconds,
        workload=workload,
    )
    return Look(rollout=rollout, health=health, at=now), lag


async def settle(
    cluster: ClusterReader,
    clock: Clock,
    name: str,
    *,
    within_seconds: float,
    stuck_after_seconds: float = STUCK_AFTER_SECONDS,
) -> Settled:
    """Wait until it is healthy, needs somebody, or the time is over; with 0 seconds look once.

    Raises:
        NotFound: when there is no such rollout.
        NotPossible: when it is deleted meanwhile.
    """
    begun = clock.monotonic()
    async with aclosing(looks(cluster, clock, name, stuck_after_seconds=stuck_after_seconds)) as stream:
        async for look in stream:
            waited = clock.monotonic() - begun
            ending = ending_of(look) if within_seconds else Ending(look.health.state)
            if ending is None and waited >= within_seconds:
                ending = Ending.TIMEOUT
            if ending:
                return Settled(outcome=ending, health=look.health, rollout=look.rollout, waited_seconds=waited)
    raise AssertionError("a watch never ends by itself")


def ending_of(look: Look) -> Ending | None:
    """Why not to wait any longer; None while it goes on by itself."""
    if look.health.state is State.PROGRESSING:
        return None
    if look.health.state is State.PAUSED and ends_by_itself(look.rollout):
        return None
    return Ending(look.health.state)
