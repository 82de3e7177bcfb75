"""Watches that users always have a ready endpoint to reach: of one Service, or of those that a route leads them to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress

from rollouts.adapters.kube.client import KubeClient
from rollouts.errors import FleetError
from rollouts.kube.objects import at
from rollouts.kube.resources import ENDPOINT_SLICES, HTTP_ROUTES
from tidegate.core.model import Json

LOOK_SECONDS = 0.2


Leads = Callable[[KubeClient], Awaitable[set[str]]]
"""The Services that users reach now."""


def service(name: str) -> Leads:
    """Always the same one."""

    async def led(_: KubeClient) -> set[str]:
        return {name}

    return led


def route(name: str) -> Leads:
    """Those that an HTTPRoute gives users to."""

    async def led(client: KubeClient) -> set[str]:
        rules = at(await client.get(HTTP_ROUTES, name), "spec", "rules", default=[])
        return {ref["name"] for rule in rules for ref in rule["backendRefs"] if ref.get("weight", 1)}

    return led


class Endpoints:
    """The ready endpoints that users reach, counted again and again from another thread."""

    def __init__(self, client: Callable[[], KubeClient], leads: Leads) -> None:
        self._client, self._leads = client, leads
        self._ending = threading.Event()
        self.looks = 0
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
        """Addresses, since one pod may be behind two Services."""
        found = set[str]()
        for name in await self._leads(client):
            slices = await client.list(ENDPOINT_SLICES, labels=f"kubernetes.io/service-name={name}")
            endpoints = [each for one in slices.items for each in one.get("endpoints") or ()]
            found |= {address for each in endpoints if _is_ready(each) for address in each["addresses"]}
        return len(found)

    def _note(self, ready: int) -> None:
        self.looks += 1
        if ready or self.fewest is not None:
            self.fewest = ready if self.fewest is None else min(self.fewest, ready)


def _is_ready(endpoint: Json) -> bool:
    return bool(endpoint.get("conditions", {}).get("ready", True))
