"""Watches that users always have a ready endpoint to reach: of one Service, or of those that a route leads them to."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from urllib.parse import urlencode

from rollouts.errors import FleetError
from rollouts.kube.client import KubeClient
from rollouts.kube.objects import at
from rollouts.kube.resources import ENDPOINT_SLICES, HTTP_ROUTES, Request
from tidegate.core.model import Json

LOOK_SECONDS = 0.2

Counts = Callable[[KubeClient], AsyncGenerator[int, None]]
"""How many endpoints users have, again and again."""


def service(name: str) -> Counts:
    """Those of one Service, at every change: the API server tells all that happened since it was last asked."""

    async def counts(client: KubeClient) -> AsyncGenerator[int, None]:
        listed = await client.send(Request("GET", ENDPOINT_SLICES, query={"labelSelector": _of(name)}))
        ready = {each["metadata"]["name"]: len(_addresses([each])) for each in listed["items"]}
        version = listed["metadata"]["resourceVersion"]
        while True:
            yield sum(ready.values())
            query = {"watch": "1", "labelSelector": _of(name), "resourceVersion": version, "timeoutSeconds": "1"}
            told = await client.text(f"{ENDPOINT_SLICES.path(client.namespace)}?{urlencode(query)}")
            for event in map(json.loads, told.splitlines()):
                if event["type"] == "ERROR":
                    return  # the version is too old: a new list
                changed, version = event["object"], event["object"]["metadata"]["resourceVersion"]
                gone = event["type"] == "DELETED"
                ready[changed["metadata"]["name"]] = 0 if gone else len(_addresses([changed]))
                yield sum(ready.values())

    return counts


def route(name: str) -> Counts:
    """Those of the Services that an HTTPRoute gives users to, whichever these are at the moment."""

    async def counts(client: KubeClient) -> AsyncGenerator[int, None]:
        while True:
            rules = at(await client.get(HTTP_ROUTES, name), "spec", "rules", default=[])
            found = set[str]()
            # Addresses, since one pod may be behind two Services.
            for led in {ref["name"] for rule in rules for ref in rule["backendRefs"] if ref.get("weight", 1)}:
                found |= _addresses(await client.list(ENDPOINT_SLICES, labels=_of(led)))
            yield len(found)
            await asyncio.sleep(LOOK_SECONDS)

    return counts


class Endpoints:
    """The ready endpoints that users reach, counted in another thread."""

    def __init__(self, client: Callable[[], KubeClient], counts: Counts) -> None:
        self._client, self._counts = client, counts
        self._ending = False
        self.looks = 0
        self.fewest: int | None = None
        """Since there was the first; None before that."""
        self._thread = threading.Thread(target=lambda: asyncio.run(self._follow()), daemon=True)
        self._thread.start()

    def end(self) -> None:
        """After one more look."""
        self._ending = True
        self._thread.join()

    async def _follow(self) -> None:
        client = self._client()
        try:
            while not self._ending:
                # An API server that is away tells nothing; the gateway goes on with what it knew.
                with suppress(FleetError):
                    async with aclosing(self._counts(client)) as counts:
                        async for ready in counts:
                            self._note(ready)
                            if self._ending:
                                break
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            await client.close()

    def _note(self, ready: int) -> None:
        self.looks += 1
        if ready or self.fewest is not None:
            self.fewest = ready if self.fewest is None else min(self.fewest, ready)


def _of(service: str) -> str:
    return f"kubernetes.io/service-name={service}"


def _addresses(slices: list[Json]) -> set[str]:
    endpoints = [each for one in slices for each in one.get("endpoints") or ()]
    return {address for each in endpoints if _is_ready(each) for address in each["addresses"]}


def _is_ready(endpoint: Json) -> bool:
    return bool(endpoint.get("conditions", {}).get("ready", True))
