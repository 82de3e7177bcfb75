"""Engines that a build starts in order to learn from them, run as a fleet runs engines."""

from __future__ import annotations

from pathlib import Path

from engine_images.model import LaunchCommand
from rollouts.adapters.engine_process import EngineProcess, EngineProcesses
from rollouts.model import Engine
from tidegate.core.clock import Clock


class BuildServer:
    """A `Server` of `engine_images.ports`."""

    def __init__(self, running: EngineProcess, seconds: float) -> None:
        """`seconds` is how long it took to answer."""
        self._running = running
        self.url = running.url
        self.seconds = seconds

    def memory_bytes(self) -> int:
        return self._running.memory_bytes()

    async def stop(self) -> None:
        await self._running.stop()


class BuildServers:
    """The `Servers` of a build."""

    def __init__(self, processes: EngineProcesses, clock: Clock, *, name: str, ready_path: str) -> None:
        """`name` is what requests carry in their `model` field."""
        self._processes = processes
        self._clock = clock
        self._name = name
        self._ready_path = ready_path

    async def start(self, launch: LaunchCommand, log: Path) -> BuildServer:
        begun = self._clock.monotonic()
        engine = Engine(
            version="being built",
            digest="",
            model=self._name,
            command=launch.command,
            environment=launch.environment,
            workdir=launch.workdir,
            memory_bytes=launch.memory_bytes,
            ready_path=self._ready_path,
        )
        running = await self._processes.start(engine, log_file=log)
        return BuildServer(running, self._clock.monotonic() - begun)
