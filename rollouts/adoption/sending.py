"""Sends the writes of an adoption, each onto the version that was read, and none that would take pods from users."""

from __future__ import annotations

from rollouts.adoption.model import Verb, Write
from rollouts.cluster.desired_objects import count_ready
from rollouts.errors import NotFound, WouldTakeDown
from rollouts.kube.model import PatchKind
from rollouts.kube.objects import at
from rollouts.kube.ports import Cluster
from rollouts.kube.resources import HTTP_ROUTES, SERVICES, resource_of
from rollouts.manifests.ownership import last_writer
from tidegate.core.model import Json


class WriteSender:
    """Writes to one region's cluster."""

    def __init__(self, region: str, cluster: Cluster) -> None:
        self._region = region
        self._cluster = cluster

    async def send(self, write: Write) -> None:
        """Send it.

        Raises:
            Conflict: somebody was faster: who looks again finds out what is left.
            WouldTakeDown: a Service would select fewer ready pods, or users would be led where none is; not sent.
            FleetError: the API server does not answer, or does not take it.
        """
        if write.verb is Verb.REPLACE and write.live["kind"] == SERVICES.kind:
            await self._keep_pods(write)
        if write.verb is Verb.REPLACE and write.live["kind"] == HTTP_ROUTES.kind:
            await self._keep_users(write)
        try:
            await self._send(write)
        except NotFound:
            # A pod that ended meanwhile needs no label; whatever else is gone is missed by the next look.
            return

    async def _send(self, write: Write) -> None:
        resource, name = resource_of(write.live), str(write.live["metadata"]["name"])
        if write.verb is Verb.CREATE:
            await self._cluster.create(resource, write.body)
        elif write.verb is Verb.REPLACE:
            await self._cluster.replace(resource, write.body)
        elif write.verb is Verb.PATCH:
            version = {"resourceVersion": write.live["metadata"]["resourceVersion"]}
            metadata = {**write.body["metadata"], **version}
            await self._cluster.patch(resource, name, {**write.body, "metadata": metadata}, kind=PatchKind.MERGE)
        else:
            await self._cluster.delete(resource, name)

    async def _ready(self, service: Json) -> int:
        return await count_ready(self._cluster, at(service, "spec", "selector", default={}))

    async def _keep_pods(self, write: Write) -> None:
        has, would = await self._ready(write.live), await self._ready(write.body)
        if would < has:
            raise WouldTakeDown(
                f"{self._region}: {write.subject} selects {has} pods that are ready, and would select {would}",
                hint=f"it was last written by {last_writer(write.live) or 'somebody'}; nothing was written to it",
            )

    async def _keep_users(self, write: Write) -> None:
        """The one who gets more users than before has a pod for them."""
        had, gets = _shares(write.live), _shares(write.body)
        for name in sorted(name for name, share in gets.items() if share > had.get(name, 0)):
            if not await self._ready(await self._cluster.get(SERVICES, name)):
                raise WouldTakeDown(
                    f"{self._region}: {write.subject} would lead users to {name}, which has no ready pod",
                    hint="nothing was written to it; run it again once the Service has ready pods",
                )


def _shares(route: Json) -> dict[str, int]:
    """Users by Service: the highest weight of any rule; a weight that is missing is 1."""
    found: dict[str, int] = {}
    for rule in at(route, "spec", "rules", default=[]):
        for ref in rule.get("backendRefs") or []:
            name = str(ref.get("name"))
            found[name] = max(found.get(name, 0), int(ref.get("weight", 1)))
    return found
