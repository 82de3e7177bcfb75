"""Pictures of one Rollout while it changes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from rollouts.argo.family import Family
from rollouts.argo.following import Watched, follow
from rollouts.argo.health import STUCK_AFTER_SECONDS, Lag
from rollouts.argo.picture import Picture, picture_of
from rollouts.argo.sources import selector_of, workload_of
from rollouts.argo.waiting import LOOK_SECONDS, look_at
from rollouts.errors import NotPossible
from rollouts.kube.ports import ClusterReader
from rollouts.kube.resources import ANALYSIS_RUNS, EXPERIMENTS, PODS, REPLICA_SETS, ROLLOUTS
from tidegate.core.clock import Clock


async def pictures(
    cluster: ClusterReader, clock: Clock, name: str, *, stuck_after_seconds: float = STUCK_AFTER_SECONDS
) -> AsyncGenerator[Picture, None]:
    """One at each change, and one each second.

    Raises:
        NotFound: when there is no such rollout at the beginning.
        NotPossible: when it is deleted.
    """
    rollout = await cluster.get(ROLLOUTS, name)
    workload = await workload_of(cluster, rollout)
    labels = selector_of(rollout, workload)
    watched = (
        Watched(ROLLOUTS, fields=f"metadata.name={name}"),
        Watched(REPLICA_SETS, labels=labels),
        Watched(PODS, labels=labels),
        Watched(ANALYSIS_RUNS),
        Watched(EXPERIMENTS),
    )
    lag: Lag | None = None
    async with aclosing(follow(cluster, clock, watched, every_seconds=LOOK_SECONDS)) as states:
        async for state in states:
            if not state[ROLLOUTS]:
                raise NotPossible(f"{name} was deleted")
            look, lag = await look_at(
                cluster, clock, state[ROLLOUTS][0], before=lag, stuck_after_seconds=stuck_after_seconds
            )
            family = Family(
                rollout=look.rollout,
                workload=workload,
                replica_sets=state[REPLICA_SETS],
                pods=state[PODS],
                analysis_runs=state[ANALYSIS_RUNS],
                experiments=state[EXPERIMENTS],
            )
            yield picture_of(family, look.health, now=look.at)
