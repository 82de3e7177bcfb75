"""Starts and stops the load, processes of its own, and adds up what became of its requests."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import BinaryIO

from gates.evidence.request_record import RecordReader
from pipelines.load.model import RATE_OF_A_PROCESS, LoadPlan, LoadTotals, totals
from tidegate.core.adapters.extras import require
from tidegate.core.children import Child, variables_for
from tidegate.core.errors import OutsideError, UsageError

LOCUSTFILE = Path(__file__).with_name("locustfile.py")
LOG_TAIL_CHARACTERS = 2000
"""Of Locust's log, in the error that says that the load ended by itself."""


class LoadProcess:
    """A load that runs. It dies with the process that started it."""

    def __init__(
        self, processes: Sequence[subprocess.Popen[bytes]], records: Path, log: Path, *, grace_seconds: float
    ) -> None:
        """`grace_seconds` is how long requests under way may take once the load is stopped."""
        self._processes = processes
        self._grace_seconds = grace_seconds
        self._begin = records.stat().st_size
        self.records = records
        self.log = log

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
            detail = self.log.read_text(encoding="utf-8", errors="replace")[-LOG_TAIL_CHARACTERS:]
            raise OutsideError(f"the load ended with code {code}", hint=f"see {self.log}", detail=detail)

    def totals(self) -> LoadTotals:
        """What became of this load's requests so far."""
        return totals(RecordReader(self.records, offset=self._begin).read_new())

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


def start_load(
    entries: Mapping[str, str],
    *,
    rate: float,
    prompts: Path,
    model: str,
    max_tokens: int,
    records: Path,
    timeout_seconds: float = 120,
    grace_seconds: float = 60,
    regenerate: float = 0,
    seed: int = 0,
) -> LoadProcess:
    """Let users of every region in `entries` (region to address) ask `rate` times a second each.

    `regenerate` is the share of answers after which a user asks the same once more.

    Call it from the main thread: the load dies with the thread that started it.

    Raises:
        UsageError: when there is no prompt to send.
        NotInstalled: without Locust.
    """
    require("gevent", "locust")
    _require_prompts(prompts)
    processes = max(ceil(rate * len(entries) / RATE_OF_A_PROCESS), 1)
    plan = LoadPlan(
        entries=entries,
        rate=rate / processes,
        prompts=str(prompts.resolve()),
        model=model,
        max_tokens=max_tokens,
        records=str(records.resolve()),
        timeout_seconds=timeout_seconds,
        regenerate=regenerate,
        seed=seed,
        parent=os.getpid(),
    )
    records.parent.mkdir(parents=True, exist_ok=True)
    # Readers may come before the first user has an answer.
    records.touch()
    # The file of records is appended to by every load; its log is of the last one only.
    log = records.with_suffix(".log")
    with log.open("wb") as output:
        started = [
            _started(plan.model_copy(update={"seed": seed * processes + number}), grace_seconds, output)
            for number in range(processes)
        ]
    return LoadProcess(started, records, log, grace_seconds=grace_seconds)


def _started(plan: LoadPlan, grace_seconds: float, log: BinaryIO) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        _command(len(plan.entries), grace_seconds),
        env={**variables_for(Child.LOAD, os.environ), "TIDEGATE_LOAD_PLAN": plan.model_dump_json()},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        # A Ctrl-C at the terminal is for the delivery, which then stops the load in its own time.
        start_new_session=True,
    )


def _command(regions: int, grace_seconds: float) -> list[str]:
    users = ["--users", str(regions), "--spawn-rate", str(regions)]
    ending = ["--stop-timeout", f"{grace_seconds:g}", "--exit-code-on-error", "0"]
    # -P keeps a caller's own `pipelines` folder from being imported in place of ours.
    command = [sys.executable, "-P", "-m", "locust", "--locustfile", str(LOCUSTFILE)]
    return [*command, "--headless", "--only-summary", *users, *ending]


def _require_prompts(prompts: Path) -> None:
    try:
        text = prompts.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot read the prompts {prompts}: {error}", hint="name a text file of UTF-8, one prompt per line"
        ) from error
    if not text.strip():
        raise UsageError(f"{prompts} has no prompts", hint="write one per line")
