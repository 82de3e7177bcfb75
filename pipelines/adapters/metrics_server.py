"""Serves a delivery's numbers at `/metrics`, for as long as it runs and until they were read a last time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from itertools import pairwise

from prometheus_client import CollectorRegistry, Metric, start_http_server
from prometheus_client.registry import Collector

from tidegate.core.errors import OutsideError

LOOPBACK = "127.0.0.1"
ANY = frozenset({"0.0.0.0", "::", ""})
MOST_SECONDS = 30.0
"""How long the end of a delivery may wait for a last scrape."""
LATE = 1.5
"""Times the longest interval between recent scrapes, after which no other is expected."""
RECENT_SCRAPES = 5
"""More than two: where a machine is busy one comes late, and the next soon after it."""
STORED_SECONDS = 0.3
"""What was read is stored a moment later, and not where the target is forgotten before."""
POLL_SECONDS = 0.05


class MetricsServer(Collector):
    """A server in a thread of its own; nothing is computed but when somebody asks."""

    def __init__(self, numbers: Callable[[], Iterable[Metric]], host: str = LOOPBACK, port: int = 0) -> None:
        """Serve `numbers` at once; port 0 takes a free one.

        Raises:
            OutsideError: when nobody can listen there.
        """
        self._numbers = numbers
        self._asked: tuple[float, ...] = ()
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            hint = "name another --metrics-address"
            raise OutsideError(f"cannot serve metrics at {host}:{port}: {error}", hint=hint) from error
        reached = LOOPBACK if host in ANY else host
        self.address = f"http://{reached}:{self._server.server_port}"
        """Where this machine reaches it; `/metrics` is below."""

    def collect(self) -> Iterable[Metric]:
        """What a scrape gets."""
        self._asked = (*self._asked[1 - RECENT_SCRAPES :], time.monotonic())
        return self._numbers()

    async def read_once_more(self) -> None:
        """Return when the numbers as they are now have been read, or when nobody seems to read them any more.

        A delivery's last word would else be lost: Prometheus ends the series of a target that is gone.
        """
        now = time.monotonic()
        if len(self._asked) < 2:
            return
        longest = max(later - sooner for sooner, later in pairwise(self._asked))
        deadline = now + min(MOST_SECONDS, LATE * longest)
        while self._asked[-1] < now and time.monotonic() < deadline:
            await asyncio.sleep(POLL_SECONDS)
        if self._asked[-1] >= now:
            await asyncio.sleep(STORED_SECONDS)

    async def close(self) -> None:
        """Listen no more; returns when the thread is gone."""
        # In a thread: the server looks only twice a second whether it shall end.
        await asyncio.to_thread(self._server.shutdown)
        self._server.server_close()
        self._thread.join()
