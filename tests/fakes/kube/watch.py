"""One watch: the events that a watcher gets, in order, until the server ends it ("Efficient detection of changes")."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from fakes.kube.kinds import Kind
from fakes.kube.refusal import expired
from fakes.kube.selectors import Selector
from fakes.kube.simulated_time import Time
from fakes.kube.store import Event, Store

Json = dict[str, Any]

BOOKMARK_SECONDS = 60.0
"""How often a watch that allows it is told how far it is (`bookmarkFrequency` of the watch cache)."""

MIN_TIMEOUT_SECONDS = 1800.0
"""When the server ends a watch that asked for no `timeoutSeconds` (`--min-request-timeout`; upstream up to twice)."""


class Watch:
    """Events since a version, of one kind and namespace.

    What begins to match the selectors is ADDED and what matches no more is DELETED, whatever happened to it.
    """

    def __init__(
        self,
        store: Store,
        time: Time,
        kind: Kind,
        *,
        namespace: str,
        chosen: Selector,
        since: str = "",
        bookmarks: bool = False,
        timeout: float | None = None,
    ) -> None:
        self._store = store
        self._time = time
        self._kind = kind
        self._namespace = namespace
        self._chosen = chosen
        self._bookmarks = bookmarks
        self._timeout = timeout or MIN_TIMEOUT_SECONDS
        self._ready: deque[Json] = deque()
        self._woken = asyncio.Event()
        self._ended = False
        self._seen = store.version
        self._begin(since)
        self._forget = store.listen(self._hear)

    def end(self) -> None:
        """Cut it; what was not read yet is lost."""
        self._ended = True
        self._forget()
        self._ready.clear()
        self._woken.set()

    def tell(self, event: Json) -> None:
        """Send something of one's own, such as the ERROR event of a version that expired."""
        self._ready.append(event)
        self._woken.set()

    async def events(self) -> AsyncIterator[Json]:
        """Until the timeout that the watcher asked for, or a cut."""
        cancels = [self._time.call_later(self._timeout, self.end)]
        if self._bookmarks:
            cancels.append(self._next_bookmark())
        try:
            while not self._ended or self._ready:
                while self._ready:
                    event = self._ready.popleft()
                    yield event
                    if event["type"] == "ERROR":
                        return
                self._woken.clear()
                if not self._ended:
                    await self._time.until(self._woken)
        finally:
            self.end()
            for cancel in cancels:
                cancel()

    def _begin(self, since: str) -> None:
        """No version or 0: everything that exists is told as ADDED first. A version: what came after it.

        Raises nothing: too old a version is an ERROR event in a stream that began well, as the watch cache does it.
        """
        if since in ("", "0"):
            for found in self._store.all(self._kind, self._namespace):
                if self._chosen(found):
                    self._ready.append({"type": "ADDED", "object": found})
        elif int(since) < self._store.oldest:
            gone = expired(f"too old resource version: {since} ({self._store.oldest})")
            self._ready.append({"type": "ERROR", "object": gone.status()})
        else:
            for event in self._store.since(int(since)):
                self._hear(event)

    def _hear(self, event: Event) -> None:
        self._seen = event.version
        if event.kind.key != self._kind.key or (self._namespace and event.namespace != self._namespace):
            return
        matched = event.before is not None and self._chosen(event.before)
        matches = event.change != "DELETED" and self._chosen(event.after)
        if matches:
            self.tell({"type": "MODIFIED" if matched else "ADDED", "object": event.after})
        elif matched and event.before is not None:
            # What matches no more is told as it last did, under the version of the change (`convertToWatchEvent`).
            last = event.before["metadata"] | {"resourceVersion": event.after["metadata"]["resourceVersion"]}
            self.tell({"type": "DELETED", "object": event.before | {"metadata": last}})

    def bookmark(self) -> None:
        """Tell how far this watch is: an object with a version and nothing else."""
        body = {
            "apiVersion": self._kind.api_version,
            "kind": self._kind.kind,
            "metadata": {"resourceVersion": str(self._store.version), "creationTimestamp": None},
        }
        self.tell({"type": "BOOKMARK", "object": body})

    def _next_bookmark(self) -> Any:
        def due() -> None:
            if not self._ended:
                self.bookmark()
                self._next_bookmark()

        return self._time.call_later(BOOKMARK_SECONDS, due)
