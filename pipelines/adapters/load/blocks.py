"""Load in blocks, brought by processes of Locust that wait for orders."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from gates.evidence.request_record import RecordReader, RequestRecord
from pipelines.load.model import LoadOrder, LoadRequest, WorkerPlan
from tidegate.core.adapters.extras import require
from tidegate.core.children import Child, variables_for
from tidegate.core.errors import OutsideError

WORKER = "pipelines.adapters.load.worker"
LOG_TAIL_CHARACTERS = 2000
LATE_SECONDS = 30.0
"""Beyond a block and the patience for its last request, until a process counts as stuck."""


class LocustBlocks:
    """A `LoadGenerator`: some processes, and the records of what they asked."""

    def __init__(self, workers: Sequence[Process], reader: RecordReader, log: Path, *, timeout_seconds: float) -> None:
        """`reader` follows the file to which all workers write."""
        self._workers, self._reader, self._log = workers, reader, log
        self._timeout_seconds = timeout_seconds

    async def block(self, order: LoadOrder) -> Sequence[RequestRecord]:
        """Bring it; returns every request of it, once all have ended."""
        parts = [(worker, order.part(index, len(self._workers))) for index, worker in enumerate(self._workers)]
        limit = order.seconds + self._timeout_seconds + LATE_SECONDS
        try:
            async with asyncio.timeout(limit):
                await asyncio.gather(*(self._brought(worker, part) for worker, part in parts if part))
        except TimeoutError as error:
            raise self._broken(f"did not end a block within {limit:.0f} s") from error
        return self._reader.read_new()

    async def _brought(self, worker: Process, order: LoadOrder) -> None:
        assert worker.stdin is not None and worker.stdout is not None, "started without pipes"
        try:
            worker.stdin.write(order.model_dump_json().encode() + b"\n")
            await worker.stdin.drain()
            answer = await worker.stdout.readline()
        except ConnectionError as error:
            raise self._broken("ended by itself") from error
        if not answer:
            raise self._broken("ended by itself")

    def _broken(self, what: str) -> OutsideError:
        tail = self._log.read_text(encoding="utf-8", errors="replace")[-LOG_TAIL_CHARACTERS:]
        return OutsideError(f"a process of the load {what}", hint=f"see {self._log}", detail=tail)


class LocustLoads:
    """The `LoadGenerators` of a delivery on this machine."""

    def __init__(self, folder: Path) -> None:
        """`folder` gets requests, records and logs."""
        self.folder = folder

    @asynccontextmanager
    async def open(
        self, name: str, requests: Sequence[LoadRequest], *, processes: int, timeout_seconds: float = 120
    ) -> AsyncIterator[LocustBlocks]:
        """Processes that bring blocks of these requests; they end with the context.

        Raises:
            NotInstalled: without Locust.
        """
        require("gevent", "locust")
        self.folder.mkdir(parents=True, exist_ok=True)
        source, records = self.folder / f"{name}.requests.jsonl", self.folder / f"{name}.jsonl"
        source.write_text("".join(f"{request.model_dump_json()}\n" for request in requests), encoding="utf-8")
        records.touch()
        plan = WorkerPlan(
            requests=source.resolve(), records=records.resolve(), timeout_seconds=timeout_seconds, parent=os.getpid()
        )
        log = self.folder / f"{name}.log"
        workers: list[Process] = []
        try:
            with log.open("wb") as output:
                for _ in range(processes):
                    workers.append(await _started(plan, output.fileno()))
            reader = RecordReader(records, offset=records.stat().st_size)
            yield LocustBlocks(workers, reader, log, timeout_seconds=timeout_seconds)
        finally:
            await asyncio.gather(*map(_ended, workers))


async def _started(plan: WorkerPlan, log: int) -> Process:
    # -P keeps a caller's own `pipelines` folder from being imported in place of ours.
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", WORKER),
        env={**variables_for(Child.LOAD, os.environ), "TIDEGATE_LOAD_PLAN": plan.model_dump_json()},
        stdin=PIPE,
        stdout=PIPE,
        stderr=log,
        # A Ctrl-C at the terminal is for the delivery, which then stops the load in its own time.
        start_new_session=True,
    )


async def _ended(worker: Process) -> None:
    """Whatever it still asks is of no use to anybody."""
    if worker.returncode is None:
        worker.kill()
    await worker.wait()
