"""Wakes a controller that lost a write to a Rollout.

Argo Rollouts up to 1.9.1 puts its own older copy of a Rollout over a newer one in its cache: what others write within
50 ms after its own write is stored and shown, and half of it never acted upon (argo-rollouts#3316, #4073, #4694; mended
by #4786, first in v1.10.0-rc1). Any later write to the object wakes it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from rollouts.argo.model import Rollout
from rollouts.errors import FleetError
from rollouts.kube.client import KubeClient
from rollouts.kube.model import STRICT, PatchKind, Request
from rollouts.kube.resources import ROLLOUTS
from tidegate.core.clock import Clock
from tidegate.core.model import Json
from tidegate.core.names import WOKEN

SILENT_SECONDS = 1.0
"""A controller that has heard writes within this; one that has much to do is asked for no more than a look."""

WAKER = "tidegate-waker"
"""Its own field manager: the time at which tidegate wrote the template says since when the controller is silent."""

log = logging.getLogger(__name__)


class Waker:
    """For the Rollouts of one namespace that wait for their controller, one at a time."""

    def __init__(self, cluster: KubeClient, clock: Clock, *, allows: Callable[[Json], None]) -> None:
        """`allows` checks each Rollout before it is written, and raises to refuse the write."""
        self._cluster = cluster
        self._clock = clock
        self._allows = allows
        self._version, self._since, self._woken = "", 0.0, False

    async def look(self, rollout: Json) -> None:
        """Write an annotation where the Rollout, for whose controller somebody waits, did not change for a second."""
        ro, now = Rollout(rollout), self._clock.monotonic()
        if ro.resource_version != self._version:
            self._version, self._since = ro.resource_version, now
        if now - self._since < SILENT_SECONDS:
            return
        self._allows(rollout)
        annotations = {WOKEN: self._clock.now().isoformat()}
        metadata = {"resourceVersion": ro.resource_version, "annotations": annotations}
        query, body = STRICT | {"fieldManager": WAKER}, {"metadata": metadata}
        where = ro.namespace or None
        request = Request("PATCH", ROLLOUTS, ro.name, where, patch=PatchKind.MERGE, body=body, query=query)
        self._since = now
        try:
            written = await self._cluster.send(request)
        except FleetError as error:
            # Somebody else's write wakes it as well; whoever waits meets everything else.
            log.info("%s: its controller was not woken: %s", ro.name, error)
            return
        self._version, self._woken = Rollout(written).resource_version, True

    def told(self) -> str:
        """What has come of it since it was told last; empty when no controller had to be woken."""
        woken, self._woken = self._woken, False
        if not woken:
            return ""
        return "its controller had not reacted, and was woken by another write (Argo Rollouts up to 1.9.1 loses some)"
