"""Serves a delivery's numbers at `/metrics`, for as long as it runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry, Metric, start_http_server
from prometheus_client.registry import Collector

from tidegate.core.errors import OutsideError

LOOPBACK = "127.0.0.1"
ANY = frozenset({"0.0.0.0", "::", ""})


class _Numbers(Collector):
    """Nothing is computed but when somebody asks."""

    def __init__(self, numbers: Callable[[], Iterable[Metric]]) -> None:
        self._numbers = numbers

    def collect(self) -> Iterable[Metric]:
        return self._numbers()


@asynccontextmanager
async def served_metrics(
    numbers: Callable[[], Iterable[Metric]], host: str = LOOPBACK, port: int = 0
) -> AsyncIterator[str]:
    """Serve `numbers` within the context, from a thread of its own; port 0 takes a free one.

    Returns:
        Where this machine reaches it; `/metrics` is below.

    Raises:
        OutsideError: when nobody can listen there.
    """
    registry = CollectorRegistry()
    registry.register(_Numbers(numbers))
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        hint = "name another --metrics-address"
        raise OutsideError(f"cannot serve metrics at {host}:{port}: {error}", hint=hint) from error
    try:
        yield f"http://{LOOPBACK if host in ANY else host}:{server.server_port}"
    finally:
        # In a thread: the server looks only twice a second whether it shall end.
        await asyncio.to_thread(server.shutdown)
        server.server_close()
        thread.join()
