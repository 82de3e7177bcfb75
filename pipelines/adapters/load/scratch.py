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
from tidegate.core.clock import SystemClock


@asynccontextmanager
async def scratch_engine(region: str, engine: Engine, *, logs: Path) -> AsyncIterator[EngineSet]:
    """One process, healthy and warm, which ends with the process that started it; `logs` is the folder of its log."""
    logs.mkdir(parents=True, exist_ok=True)
    async with Http() as http:
        # What runs here already is seen in the memory that is left.
        admission = Admission(machine.measure)
        processes = EngineProcesses(f"{region}-scratch", logs=logs, http=http, admission=admission, clock=SystemClock())
        running = await processes.start(engine)
        try:
            yield EngineSet(role=Role.STABLE, version=engine.version, digest=engine.digest, url=running.url, ready=True)
        finally:
            # Nobody waits for an answer of it.
            await running.abandon()
