"""The repository of a delivery, with the tool that applies it, as its spec says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pipelines.repository import GitAccess, SyncSource
from pipelines.spec.delivery import Delivery
from pipelines.spec.git import GitSpec
from rollouts.kube.ports import ClusterReader
from rollouts.manifests.spec import ArgoFleetSpec
from tidegate.core.clock import Clock, SystemClock


def git_access_for(spec: Delivery, clock: Clock) -> GitAccess | None:
    """The repository that says what regions serve; None where the spec names none. Asks nobody yet."""
    git = spec.git
    if git is None:
        return None
    # Not above: few specs have it.
    from pipelines.adapters.git.remote import GitRemote

    return GitAccess(GitRemote(git, clock), _synced(spec, git))


def _synced(spec: Delivery, git: GitSpec) -> SyncSource | None:
    fleet = spec.fleet
    if git.sync is None or not isinstance(fleet, ArgoFleetSpec):
        return None
    from pipelines.adapters.git.synced import ToolInCluster
    from rollouts.adapters.kube.client import connect

    tool = git.sync.tool

    @asynccontextmanager
    async def cluster_of(region: str) -> AsyncIterator[ClusterReader]:
        context = tool.context or fleet.regions[region].context or None
        client = connect(context, clock=SystemClock(), namespace=tool.namespace)
        try:
            yield client
        finally:
            await client.close()

    return ToolInCluster(tool, cluster_of)
