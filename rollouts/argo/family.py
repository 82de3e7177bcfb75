"""A Rollout with everything that comes from it: what a picture of it needs."""

from __future__ import annotations

import asyncio

from rollouts.argo.sources import selector_of, workload_of
from rollouts.kube.model import Json, Resource
from rollouts.kube.ports import ClusterReader
from rollouts.kube.resources import ANALYSIS_RUNS, EXPERIMENTS, PODS, REPLICA_SETS, ROLLOUTS
from tidegate.core.model import Value

Objects = tuple[Json, ...]


class Family(Value):
    """Objects as they were read; some may belong to other rollouts."""

    rollout: Json
    workload: Json | None = None
    """What `spec.workloadRef` names."""
    replica_sets: Objects = ()
    pods: Objects = ()
    analysis_runs: Objects = ()
    experiments: Objects = ()


async def family_of(cluster: ClusterReader, name: str) -> Family:
    """Read it all at about the same time.

    Raises:
        NotFound: when there is no such rollout.
    """
    rollout = await cluster.get(ROLLOUTS, name)
    workload = await workload_of(cluster, rollout)
    labels = selector_of(rollout, workload)

    async def listed(resource: Resource, labels: str = "") -> Objects:
        return (await cluster.list(resource, labels=labels)).items

    replica_sets, pods, runs, experiments = await asyncio.gather(
        listed(REPLICA_SETS, labels), listed(PODS, labels), listed(ANALYSIS_RUNS), listed(EXPERIMENTS)
    )
    return Family(
        rollout=rollout,
        workload=workload,
        replica_sets=replica_sets,
        pods=pods,
        analysis_runs=runs,
        experiments=experiments,
    )
