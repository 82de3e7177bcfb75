"""Takes snapshots of a region of LeaderWorkerSets, and waits until the engines of a version are up."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from rollouts.cluster.carrier import Fence
from rollouts.cluster.model import RegionConfig
from rollouts.cluster.routes import RouteKind
from rollouts.errors import EngineDidNotStart, Overruled
from rollouts.kube.model import Resource
from rollouts.kube.pods import pod_problems, start_failure
from rollouts.kube.ports import Cluster, find
from rollouts.kube.resources import LEADER_WORKER_SETS, PODS, SERVICES
from rollouts.kube.retry import time_left
from rollouts.manifests.conventions import LEADER, WORKER_INDEX, canary_service, stable_service
from rollouts.multinode.model import EngineGroups
from rollouts.multinode.snapshot import GroupsSnapshot
from tidegate.core.clock import Clock
from tidegate.core.names import DELIVERY

POLL_SECONDS = 1.0
"""Between two snapshots while an operation is in progress."""

MOST_RECREATIONS = 3
"""A group whose leader was made again so often while it should come up does not come up: its controller ends the whole
group whenever a container of it ends, so that no pod ever says that it is started in vain."""


def moving_users(config: RegionConfig, routes: RouteKind) -> tuple[tuple[Resource, str], ...]:
    """The objects by which users of LeaderWorkerSets are moved."""
    services = (stable_service(config.name), canary_service(config.name))
    return (*((SERVICES, name) for name in services), (routes.resource, config.route))


class GroupsObserver:
    """Takes snapshots of one region."""

    def __init__(self, config: RegionConfig, cluster: Cluster, routes: RouteKind, clock: Clock, fence: Fence) -> None:
        self._config = config
        self._cluster = cluster
        self._routes = routes
        self._clock = clock
        self._fence = fence

    async def observe(self) -> GroupsSnapshot:
        """The region as it is now.

        Raises:
            NotTheCarrier: it is somebody else's by now, who replaced us.
            FleetError: when the API server does not answer, or does not let us see.
        """
        moving = moving_users(self._config, self._routes)
        stable, canary, route = await asyncio.gather(*(find(self._cluster, kind, name) for kind, name in moving))
        for found in (stable, canary, route):
            # Whatever is written is written onto these.
            self._fence.allows(found)
        sets = await self._cluster.list(LEADER_WORKER_SETS, labels=self._ours)
        snapshot = GroupsSnapshot(
            at=self._clock.now(),
            name=self._config.name,
            routes=self._routes,
            stable_service=stable,
            canary_service=canary,
            route=route,
            sets=sets.items,
        )
        if snapshot.is_whole:
            return snapshot
        return replace(snapshot, pods=(await self._cluster.list(PODS, labels=self._ours)).items)

    async def until_up(self, version: str, *, within: float) -> None:
        """Return once all engines of a version are ready.

        Raises:
            EngineDidNotStart: they do not come up, or not in time.
            Overruled: somebody deleted them meanwhile.
        """
        begun, leaders = self._clock.monotonic(), _Leaders()
        while True:
            snapshot = await self.observe()
            which = snapshot.of_version(version)
            if which is None:
                raise Overruled(
                    f"the engines of version {version} were deleted while they came up",
                    hint="find out who deletes its LeaderWorkerSet, and deliver again",
                )
            if which.is_complete:
                return
            leaders.see(snapshot, which)
            if died := start_failure(snapshot.pods_of(which)) or leaders.failure:
                raise EngineDidNotStart(
                    f"version {version} does not start: {died.splitlines()[-1]}",
                    hint="--debug shows the end of its log",
                    detail=died,
                )
            waited = self._clock.monotonic() - begun
            if waited >= within or time_left() <= 0:
                missing = snapshot.missing(which)
                message = f"{self._config.name}: version {version} did not come about within {waited:.0f} s"
                raise EngineDidNotStart(f"{message}: {missing.splitlines()[-1]}", detail=missing)
            await self._clock.sleep(POLL_SECONDS)

    @property
    def _ours(self) -> str:
        return f"{DELIVERY}={self._config.name}"


class _Leaders:
    """Leaders that were seen while a version should come up, and the last words of those that died."""

    def __init__(self) -> None:
        self._uids: Mapping[str, set[str]] = defaultdict(set)
        self._words = ""

    def see(self, snapshot: GroupsSnapshot, which: EngineGroups) -> None:
        for pod in snapshot.pods_of(which):
            metadata = pod["metadata"]
            if (metadata.get("labels") or {}).get(WORKER_INDEX) == LEADER:
                self._uids[metadata["name"]].add(metadata["uid"])
            self._words = pod_problems([pod]) or self._words

    @property
    def failure(self) -> str:
        """Why it is in vain to wait; empty while it is not."""
        most = max((len(uids) for uids in self._uids.values()), default=0)
        if most <= MOST_RECREATIONS:
            return ""
        return self._words or f"its group was made again {most - 1} times"
