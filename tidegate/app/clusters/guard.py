"""Ends a trial without a carrier, from within the region's cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from pipelines.adapters.fleets import cluster_client, probed
from rollouts.cluster.guard import Guard, GuardLoop
from rollouts.cluster.guarded import GuardedRollout
from rollouts.cluster.model import RegionConfig
from rollouts.cluster.routes import HttpRoutes, RouteKind, VirtualServices
from rollouts.manifests.conventions import TrafficRouter
from tidegate.core.clock import SystemClock
from tidegate.core.process import cancelled_by_signals

RETRY_SECONDS = 60.0
"""For a way back that nobody answers; what was begun goes on with the next look."""


@dataclass(frozen=True)
class GuardOptions:
    """Which trial to guard, and how."""

    name: str
    region: str
    context: str | None
    namespace: str | None
    traffic: TrafficRouter
    route: str
    """The name of the route that splits users; the delivery's when empty."""
    start_seconds: float
    after_abort_seconds: float
    warm: int
    probes: int | None
    """A port; None answers no probes."""


def guard_region(asked: GuardOptions, say: Callable[[str], None]) -> None:
    """Guard until a signal comes; `say` gets a line for whatever is done."""
    asyncio.run(_guard(asked, say))


async def _guard(asked: GuardOptions, say: Callable[[str], None]) -> None:
    # Each look asks once: a server that was away in the middle of a look must not pass for one that was there.
    client, clock = cluster_client(asked.context, asked.namespace, retry_seconds=0), SystemClock()
    with suppress(asyncio.CancelledError):
        async with client as cluster:
            place = _place(asked)
            region = GuardedRollout(place, cluster, _routes(asked.traffic), clock)
            guarding = GuardLoop(Guard(place, region, cluster, clock), clock, say)
            async with (
                probed(asked.probes, lambda: guarding.problem),
                cancelled_by_signals("the next guard goes on with what was begun"),
            ):
                await guarding.run()


def _place(asked: GuardOptions) -> RegionConfig:
    return RegionConfig(
        region=asked.region,
        name=asked.name,
        route_name=asked.route,
        # Addresses are for those who ask engines.
        entry="",
        stable_url="",
        canary_url="",
        start_seconds=asked.start_seconds,
        retry_seconds=RETRY_SECONDS,
        warm_versions=asked.warm or None,
        after_abort_seconds=asked.after_abort_seconds,
    )


def _routes(traffic: TrafficRouter) -> RouteKind:
    return VirtualServices() if traffic is TrafficRouter.ISTIO else HttpRoutes()
