"""What a region needs from the world: something that runs engines and something that moves traffic."""

from __future__ import annotations

from typing import Protocol

from rollouts.local.xds import Routes
from rollouts.model import Engine


class RunningEngine(Protocol):
    """One engine that was started, until it is stopped."""

    engine: Engine
    """What was asked for."""
    port: int
    """On the loopback; an engine that is started again keeps it, so that routes stay true."""
    url: str
    """Its own address, past the proxy."""

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        ...

    def tail(self) -> str:
        """The last lines of its log."""
        ...

    async def busy(self) -> int:
        """How many requests it works on or holds in its queue; 0 when it is dead."""
        ...

    async def stop(self) -> None:
        """Ask it to end, wait, then make it. Also right for an engine that is dead already."""
        ...

    async def abandon(self) -> None:
        """End it at once: no user waits for an answer of it."""
        ...


class EngineRunner(Protocol):
    """Runs engines on this machine."""

    async def start(self, engine: Engine, *, port: int | None = None) -> RunningEngine:
        """Return once the engine answers as fast as it ever will; `port` when it must be a certain one.

        Raises:
            CapacityError: when the machine is too small; nothing was started.
            EngineDidNotStart: when it died or stayed unhealthy; nothing is left running.
        """
        ...


class Proxy(Protocol):
    """The one endpoint of a region, behind which engines change."""

    entry: str
    """The address that users talk to; it never changes while the region is up."""

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        ...

    async def swap(self, routes: Routes) -> None:
        """Return once every new request follows `routes`; requests in flight stay where they are."""
        ...

    async def prune(self) -> None:
        """Forget engines that the routes of the last `swap` do not name, as far as no request is in flight on them."""
        ...

    async def active(self, version: str) -> int:
        """How many requests are in flight on that version, whatever its role."""
        ...

    async def restart(self) -> None:
        """Start again at the same address with the routes of the last `swap`."""
        ...

    async def stop(self) -> None:
        """Close the endpoint."""
        ...
