"""Watches that a Service always has a ready endpoint: there must always be one for users to reach."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from rollouts.adapters.kube.client import KubeClient
from rollouts.errors import FleetError
from rollouts.kube.resources import ENDPOINT_SLICES
from tidegate.core.model import Json

LOOK_SECONDS = 0.2


class Endpoints:
    """The ready endpoints of one Service, counted again and again from another thread."""

    def __init__(self, client: Callable[[], KubeClient], service: str) -> None:
        self._client, self._service = client, service
        self._ending = threading.Event()
        self.fewest: int | None = None
        """Since there was the first; None before that."""
        self._thread = threading.Thread(target=lambda: asyncio.run(self._look_on()), daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ending.set()
        self._thread.join()

    async def _look_on(self) -> None:
        client = self._client()
        while not self._ending.is_set():
            # An API server that is away tells nothing; the gateway goes on with what it knew.
            with suppress(FleetError):
                self._note(await self._ready(client))
            await asyncio.sleep(LOOK_SECONDS)
        await client.close()

    async def _ready(self, client: KubeClient) -> int:
        slices = await client.list(ENDPOINT_SLICES, labels=f"kubernetes.io/service-name={self._service}")
        return sum(_is_ready(each) for one in slices.items for each in one.get("endpoints") or ())

    def _note(self, ready: int) -> None:
        if ready or self.fewest is not None:
            self.fewest = ready if self.fewest is None else min(self.fewest, ready)


def _is_ready(endpoint: Json) -> bool:
    return bool(endpoint.get("conditions", {}).get("ready", True))
