"""`tidegate rollout guard`: ends a trial without a carrier, from within the region's cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from rollouts.adapters.kube.client import connect
from rollouts.adapters.probes import answering
from rollouts.cluster.guard import Guard, GuardLoop
from rollouts.cluster.model import RegionConfig
from rollouts.cluster.routes import HttpRoutes, RouteKind, VirtualServices
from rollouts.manifests.conventions import TrafficRouter
from tidegate.app.process import cancelled_by_signals
from tidegate.cli.output import say
from tidegate.cli.rollout_options import seconds_of
from tidegate.core.clock import SystemClock
from tidegate.core.errors import ExitCode

RETRY_SECONDS = 60.0
"""For a way back that nobody answers; what was begun goes on with the next look."""


@dataclass(frozen=True)
class GuardOptions:
    """As the options say it."""

    name: str
    region: str
    context: str | None
    namespace: str | None
    traffic: TrafficRouter
    start_within: str
    after_abort: str
    warm: int
    probes: int | None
    """A port; None answers no probes."""


def guard_region(asked: GuardOptions) -> int:
    """Guard until a signal comes."""
    return asyncio.run(_run(asked))


async def _run(asked: GuardOptions) -> int:
    place, clock = _place(asked), SystemClock()
    # Each look asks once: a server that was away in the middle of a look must not pass for one that was there.
    cluster = connect(asked.context, clock=clock, namespace=asked.namespace, retry_seconds=0)
    try:
        guarding = GuardLoop(Guard(place, cluster, _routes(asked.traffic), clock), clock, say)
        async with _probed(asked.probes, guarding), cancelled_by_signals("the next guard goes on with what was begun"):
            await guarding.run()
    except asyncio.CancelledError:
        return ExitCode.DELIVERED
    finally:
        await cluster.close()
    return ExitCode.DELIVERED


@asynccontextmanager
async def _probed(port: int | None, guarding: GuardLoop) -> AsyncIterator[None]:
    if port is None:
        yield
        return
    async with answering(port, lambda: guarding.problem):
        yield


def _place(asked: GuardOptions) -> RegionConfig:
    return RegionConfig(
        region=asked.region,
        name=asked.name,
        # Addresses are for those who ask engines.
        entry="",
        stable_url="",
        canary_url="",
        start_seconds=seconds_of(asked.start_within, "--start-within"),
        retry_seconds=RETRY_SECONDS,
        warm_versions=asked.warm or None,
        after_abort_seconds=seconds_of(asked.after_abort, "--after-abort"),
    )


def _routes(traffic: TrafficRouter) -> RouteKind:
    return VirtualServices() if traffic is TrafficRouter.ISTIO else HttpRoutes()
