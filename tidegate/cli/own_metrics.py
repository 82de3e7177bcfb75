"""A delivery's own numbers: where they are served, and who reads them meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

from pipelines.adapters.metrics_server import MetricsServer
from rollouts.adapters.host_client import FleetHost
from tidegate.cli.output import note
from tidegate.core.errors import TidegateError


@asynccontextmanager
async def read_by(host: FleetHost, name: str, server: MetricsServer) -> AsyncIterator[None]:
    """Let the fleet's Prometheus read `server` meanwhile, under that name, and once more at the end."""
    await _tried(host.scrape_also(name, server.address))
    try:
        yield
        await server.read_once_more()
    finally:
        await _tried(host.forget(name))


async def _tried(wish: Awaitable[None]) -> None:
    """A delivery does not depend on being watched."""
    try:
        await wish
    except TidegateError as error:
        note(f"the fleet's Prometheus was not told where this delivery's numbers are: {error}")
