"""Starts and stops loads, each some processes of Locust, and reads what became of their requests."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from time import monotonic
from typing import BinaryIO

from gates.evidence.request_record import RecordReader, RequestRecord
from pipelines.load import RATE_OF_A_PROCESS, LoadOrder, LoadPlan, LoadRequest, LoadTotals, plain_requests, totals
from tidegate.core.adapters.extras import require
from tidegate.core.children import Child, variables_for
from tidegate.core.errors import OutsideError
from tidegate.core.files import lock_open_file

LOCUSTFILE = Path(__file__).with_name("locustfile.py")
LOG_TAIL_CHARACTERS = 2000
"""Of Locust's log, in the error that says that the load ended by itself."""
LATE_SECONDS = 30.0
"""Beyond a block and the patience for its last request, until its processes count as stuck."""
READY_SECONDS = 0.05
"""Between two looks whether all processes of a block are ready."""
GRACE_SECONDS = 60.0
"""How long users' requests under way may take once their load is stopped."""


class LoadProcess:
    """A load that runs. It dies with the process that started it."""

    def __init__(self, plans: Sequence[LoadPlan], *, grace_seconds: float) -> None:
        """A process for each plan, all of one file of records; the last requests may take so long in the end."""
        self.records = plans[0].records
        self._grace_seconds = grace_seconds
        self.records.parent.mkdir(parents=True, exist_ok=True)
        # Readers may come before the first user has an answer.
        self.records.touch()
        self._begin = self.records.stat().st_size
        # The file of records is appended to by every load; its log is of the last one only.
        self.log = self.records.with_suffix(".log")
        with self.log.open("wb") as output:
            self._processes = [self._started(plan, output.fileno()) for plan in plans]

    def _started(self, plan: LoadPlan, log: int) -> subprocess.Popen[bytes]:
        users = str(len(plan.orders))
        of_users = () if plan.orders[0].seconds else ("--users", users, "--spawn-rate", users)
        ending = ("--stop-timeout", f"{self._grace_seconds:g}", "--exit-code-on-error", "0")
        # -P keeps a caller's own `pipelines` folder from being imported in place of ours.
        locust = (sys.executable, "-P", "-m", "locust", "--locustfile", str(LOCUSTFILE), "--headless", "--only-summary")
        return subprocess.Popen(
            [*locust, *of_users, *ending],
            env={**variables_for(Child.LOAD, os.environ), "TIDEGATE_LOAD_PLAN": plan.model_dump_json()},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # A Ctrl-C at the terminal is for the delivery, which then stops the load in its own time.
            start_new_session=True,
        )

    @property
    def pids(self) -> tuple[int, ...]:
        """Of the Locust processes."""
        return tuple(process.pid for process in self._processes)

    def check(self) -> None:
        """Be sure that the users are still there.

        Raises:
            OutsideError: when the load ended by itself; `detail` has the end of its log.
        """
        code = next((code for process in self._processes if (code := process.poll()) is not None), None)
        if code is not None:
            raise self._broken(f"ended with code {code}")

    def totals(self) -> LoadTotals:
        """What became of this load's requests so far."""
        return totals(self.read())

    def read(self) -> Sequence[RequestRecord]:
        """The requests of this load that have ended."""
        return RecordReader(self.records, offset=self._begin).read_new()

    async def end(self, limit: float, shut: BinaryIO | None = None) -> Sequence[RequestRecord]:
        """The requests of a block that ends by itself, once all have ended; `shut` is the locked gate of its processes.

        Raises:
            OutsideError: a process ended before, or is stuck.
        """
        try:
            if shut:
                ready, until = [Path(shut.name).with_suffix(f".{pid}") for pid in self.pids], monotonic() + LATE_SECONDS
                # One that has ended, or is not ready in time, is told of below.
                while not all(each.exists() for each in ready) and monotonic() < until:
                    if any(process.poll() is not None for process in self._processes):
                        break
                    await asyncio.sleep(READY_SECONDS)
                shut.close()
                for each in ready:
                    each.unlink(missing_ok=True)
            waits = (asyncio.to_thread(process.wait, limit) for process in self._processes)
            if broken := next(filter(None, await asyncio.gather(*waits)), None):
                raise self._broken(f"ended with code {broken}")
        except subprocess.TimeoutExpired as error:
            raise self._broken(f"did not end a block within {limit:.0f} s") from error
        finally:
            # Whatever it still asks is of no use to anybody.
            for process in self._processes:
                process.kill()
        return self.read()

    async def stop(self) -> LoadTotals:
        """Send no more requests, let those under way end, and count.

        A request still running after the grace is neither recorded nor counted. May be called again.
        """
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        await asyncio.gather(*map(self._ended, self._processes))
        return self.totals()

    async def _ended(self, process: subprocess.Popen[bytes]) -> None:
        try:
            # Locust bounds the requests itself; the rest is for its own exit.
            await asyncio.to_thread(process.wait, self._grace_seconds + 10)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.wait)

    def _broken(self, what: str) -> OutsideError:
        tail = self.log.read_text(encoding="utf-8", errors="replace")[-LOG_TAIL_CHARACTERS:]
        return OutsideError(f"the load {what}", hint=f"see {self.log}", detail=tail)


def start_load(
    entries: Mapping[str, str],
    *,
    rate: float,
    prompts: Sequence[str],
    model: str,
    max_tokens: int,
    records: Path,
) -> LoadProcess:
    """Let users of every region in `entries` (region to address) ask `rate` times a second each.

    Call it from the main thread: the load dies with the thread that started it.

    Raises:
        NotInstalled: without Locust.
    """
    orders = [LoadOrder(url=url, model=model, region=region, rate=rate, seed=0) for region, url in entries.items()]
    requests, processes = plain_requests(prompts, max_tokens), max(ceil(rate * len(orders) / RATE_OF_A_PROCESS), 1)
    plans = _plans(orders, requests, records, processes=processes)
    return LoadProcess(plans, grace_seconds=GRACE_SECONDS)


class LocustLoads:
    """Brings blocks of load from this machine."""

    def __init__(self, folder: Path, *, timeout_seconds: float = 120) -> None:
        """`folder` gets requests, records and logs."""
        self.folder, self._timeout_seconds = folder, timeout_seconds

    async def block(
        self, name: str, order: LoadOrder, requests: Sequence[LoadRequest], processes: int
    ) -> Sequence[RequestRecord]:
        """As `BringLoad`; raises NotInstalled without Locust."""
        assert order.seconds is not None, "a block has an end"
        records, timeout = self.folder / f"{name}.jsonl", self._timeout_seconds
        plans = _plans([order], requests, records, processes=processes, timeout_seconds=timeout)
        # Whole seconds, and time to write down what was given up.
        grace, limit = ceil(timeout) + 1, order.seconds + timeout + LATE_SECONDS
        if len(plans) == 1:
            return await LoadProcess(plans, grace_seconds=grace).end(limit)
        gate = records.with_suffix(".gate")
        with gate.open("wb") as shut:
            lock_open_file(shut)
            together = [plan.model_copy(update={"gate": gate.resolve()}) for plan in plans]
            return await LoadProcess(together, grace_seconds=grace).end(limit, shut)


def _plans(
    orders: Sequence[LoadOrder],
    requests: Sequence[LoadRequest],
    records: Path,
    *,
    processes: int,
    timeout_seconds: float = 120,
) -> list[LoadPlan]:
    """One for each process that has something to do."""
    require("gevent", "locust")
    source = records.with_suffix(".requests.jsonl")
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text("".join(f"{request.model_dump_json()}\n" for request in requests), encoding="utf-8")
    parts = ([part for order in orders if (part := order.part(index, processes))] for index in range(processes))
    return [
        LoadPlan(
            orders=tuple(part),
            requests=source.resolve(),
            records=records.resolve(),
            timeout_seconds=timeout_seconds,
            parent=os.getpid(),
        )
        for part in parts
        if part
    ]
