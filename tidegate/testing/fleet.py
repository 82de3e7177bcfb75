"""A fleet in memory: the rules of the fleet on this machine, between a proxy and engines that are only pretended."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from hashlib import sha256

from rollouts.base import RegionSplit
from rollouts.errors import EngineDidNotStart
from rollouts.local.region import LocalRegion
from rollouts.model import PORT, Engine, RegionState
from tidegate.core.clock import Clock
from tidegate.testing.clock import FakeClock


def digest_of(version: str) -> str:
    """The digest of a made-up version's files."""
    return sha256(f"version {version}".encode()).hexdigest()


def an_engine(version: str, *, digest: str | None = None) -> Engine:
    """An engine that needs nothing from the machine."""
    return Engine(
        version=version,
        digest=digest or digest_of(version),
        model="support-llm",
        command=("serve", "--port", PORT),
        workdir="/",
        memory_bytes=1,
    )


class FakeEngine:
    """A `RunningEngine` that does nothing."""

    def __init__(self, engine: Engine, port: int) -> None:
        self.engine = engine
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.alive = True
        self.in_flight = 0
        self.last_words = ""
        self.abandoned = False
        """Whether it was ended without asking."""

    def tail(self) -> str:
        return self.last_words

    async def busy(self) -> int:
        """One request fewer at each look, as if they ended."""
        self.in_flight = max(0, self.in_flight - 1)
        return self.in_flight

    async def stop(self) -> None:
        self.alive = False

    async def abandon(self) -> None:
        self.alive, self.abandoned = False, True


class FakeEngines:
    """`Engines` that are up at once, or refuse to."""

    def __init__(self) -> None:
        self.refusals: dict[str, str] = {}
        self.started: list[FakeEngine] = []
        self._ports = itertools.count(8001)

    async def start(self, engine: Engine, *, port: int | None = None) -> FakeEngine:
        if engine.version in self.refusals:
            reason = self.refusals[engine.version]
            raise EngineDidNotStart(f"the engine of version {engine.version} died while it started", detail=reason)
        running = FakeEngine(engine, port or next(self._ports))
        self.started.append(running)
        return running

    def running(self) -> list[str]:
        """The versions that are up."""
        return [running.engine.version for running in self.started if running.alive]

    def newest(self, version: str) -> FakeEngine:
        """The last start of that version."""
        return [running for running in self.started if running.engine.version == version][-1]


class FakeProxy:
    """A `Proxy` that remembers every route it was given."""

    def __init__(self, region: str) -> None:
        self.entry = f"http://{region}.test"
        self.alive = True
        self.swaps: list[RegionSplit] = []
        self.restarts = 0

    @property
    def routes(self) -> RegionSplit:
        """What holds now."""
        return self.swaps[-1]

    async def swap(self, split: RegionSplit, ports: Mapping[str, int]) -> None:
        self.swaps.append(split)

    async def prune(self) -> None: ...

    async def active(self, version: str) -> int:
        return 0

    async def restart(self) -> None:
        self.restarts += 1
        self.alive = True

    async def stop(self) -> None:
        self.alive = False


class FakeFleet(LocalRegion):
    """A `Fleet` for tests of what stands above it."""

    def __init__(self, region: str = "eu-west-1", *, clock: Clock | None = None) -> None:
        self.engines, self.proxy = FakeEngines(), FakeProxy(region)
        super().__init__(region, proxy=self.proxy, engines=self.engines, clock=clock or FakeClock())

    def refuse(self, version: str, *, because: str = "out of memory") -> None:
        """The next deploys of that version fail."""
        self.engines.refusals[version] = because

    def kill(self, version: str, *, last_words: str = "Killed") -> None:
        """The engine of that version dies."""
        running = self.engines.newest(version)
        running.last_words = last_words
        running.alive = False

    async def observe(self) -> RegionState:
        # What the host does all the time happens here whenever somebody looks.
        await self.reconcile()
        await asyncio.sleep(0)
        return await super().observe()
