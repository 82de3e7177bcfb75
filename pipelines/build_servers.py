"""Engines that a build starts in order to learn from them, run as a fleet runs engines."""

from __future__ import annotations

from pathlib import Path

from engine_images.adapters.engine_root import READY_PATH
from engine_images.model import LaunchCommand
from rollouts.adapters import machine
from rollouts.adapters.engine_process import EngineProcess, EngineProcesses
from rollouts.adapters.http import Http
from rollouts.capacity import Admission
from rollouts.model import Engine
from tidegate.core.clock import Clock

NAME = "build"


def engine_of(launch: LaunchCommand, *, version: str, digest: str, model: str) -> Engine:
    """What a fleet is asked to run so that a built engine is started by its entrypoint."""
    return Engine(version=version, digest=digest, model=model, ready_path=READY_PATH, **launch.model_dump())


class BuildServer:
    """A `Server` of `engine_images.ports`."""

    def __init__(self, running: EngineProcess, http: Http, seconds: float) -> None:
        """`seconds` is how long it took to answer."""
        self._running = running
        self._http = http
        self.url = running.url
        self.seconds = seconds

    def memory_bytes(self) -> int:
        return self._running.memory_bytes()

    async def stop(self) -> None:
        try:
            await self._running.stop()
        finally:
            await self._http.close()


class BuildServers:
    """The `Servers` of a build."""

    def __init__(self, clock: Clock, *, name: str) -> None:
        """`name` is what requests carry in their `model` field."""
        self._clock = clock
        self._name = name

    async def start(self, launch: LaunchCommand, log: Path) -> BuildServer:
        engine = engine_of(launch, version=NAME, digest="", model=self._name)
        http = Http()
        try:
            begun = self._clock.monotonic()
            running = await self._processes(http, log).start(engine, log_file=log)
            return BuildServer(running, http, self._clock.monotonic() - begun)
        except BaseException:
            await http.close()
            raise

    def _processes(self, http: Http, log: Path) -> EngineProcesses:
        return EngineProcesses(
            NAME, logs=log.parent, http=http, admission=Admission(machine.measure), clock=self._clock
        )
