"""Engines of this machine that serve nobody: for load that no user shall feel."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rollouts.adapters.engine_process import EngineProcesses
from rollouts.adapters.http import Http
from rollouts.local import machine
from rollouts.local.machine import Admission
from rollouts.model import Engine, EngineSet, Role
from tidegate.core.clock import Clock


class ScratchProcesses:
    """The `ScratchEngines` of this machine; they end with the process that started them."""

    def __init__(self, logs: Path, clock: Clock) -> None:
        """`logs` is the folder of engines' logs."""
        self._logs, self._clock = logs, clock

    @asynccontextmanager
    async def start(self, region: str, engine: Engine) -> AsyncIterator[EngineSet]:
        """One process, healthy and warm."""
        self._logs.mkdir(parents=True, exist_ok=True)
        http = Http()
        try:
            # What runs here already is seen in the memory that is left.
            admission = Admission(machine.measure)
            processes = EngineProcesses(
                f"{region}-scratch", logs=self._logs, http=http, admission=admission, clock=self._clock
            )
            running = await processes.start(engine)
            try:
                yield EngineSet(
                    role=Role.STABLE, version=engine.version, digest=engine.digest, url=running.url, ready=True
                )
            finally:
                # Nobody waits for an answer of it.
                await running.abandon()
        finally:
            await http.aclose()
