"""Processes that end with us, keep a log, and leave nobody behind."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from tidegate.core.children import Child, variables_for

GUARD = Path(__file__).with_name("guard.py")
POLL_SECONDS = 0.05

_CAUSE = re.compile(r"(?:(?:^|\] )(?=[\w.]*(?:Error|Exception): )|\bended code=\d+ reason=|^[\w.]+: error: )(.{1,300})")
"""As a traceback, an entrypoint, or a program that does not take its arguments ends; no words in a warning."""

TAIL_LINES = 20
"""Of a log, in errors: enough for the end of a traceback."""


class ChildProcess:
    """A process that was started, with its group."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self.pid = process.pid
        self.log = log

    @property
    def alive(self) -> bool:
        """Whether it runs. The dead are left unburied until `stop`, so that their group keeps its id."""
        # Set by `kill`: after that the id may belong to another process.
        if self._process.returncode is not None:
            return False
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None

    def tail(self) -> str:
        """The last lines of its log."""
        with self.log.open(encoding="utf-8", errors="replace") as lines:
            return "".join(deque(lines, maxlen=TAIL_LINES)).rstrip()

    def memory_bytes(self) -> int:
        """Proportional set size of it and all its descendants; what ended meanwhile counts no more."""
        process, found = psutil.Process(self.pid), 0
        for each in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                found += int(each.memory_full_info().pss)
        return found

    def first_error(self) -> str | None:
        """The first exception that its log names: what follows it is mostly other processes giving up."""
        with self.log.open(encoding="utf-8", errors="replace") as lines:
            return next((found[1].strip() for line in lines if (found := _CAUSE.search(line))), None)

    async def stop(self, *, grace_seconds: float) -> None:
        """SIGTERM, up to `grace_seconds` of patience, then SIGKILL for whatever its group still holds."""
        if self._process.returncode is not None:
            return
        try:
            if self.alive:
                self._process.send_signal(signal.SIGTERM)
            await self.ends_within(grace_seconds)
        # Also when we are cancelled while we wait: nobody may be left behind.
        finally:
            self.kill()

    def kill(self) -> None:
        """End the whole group now."""
        if self._process.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()

    async def ends_within(self, seconds: float) -> bool:
        """Whether it ends by itself in that time."""
        deadline = asyncio.get_running_loop().time() + seconds
        while self.alive and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(POLL_SECONDS)
        return not self.alive


def start(
    command: Sequence[str],
    *,
    kind: Child,
    log: Path,
    workdir: Path | None = None,
    environment: Mapping[str, str] | None = None,
    orphan_signal: signal.Signals | None = signal.SIGKILL,
) -> ChildProcess:
    """Start `command` in a group of its own, which a Ctrl-C at the terminal does not reach.

    Its `kind` says which of our variables it gets, besides `environment`; `log` gets everything that it prints. When
    this process ends in any way it gets `orphan_signal`: SIGKILL, which its whole family gets, or SIGTERM; None lets it
    live on.
    """
    # -I and -S: the guard needs no packages, and must not run what a folder or the environment names.
    guard = [sys.executable, "-I", "-S", str(GUARD), str(int(orphan_signal)), str(os.getpid())] if orphan_signal else []
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*guard, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=workdir,
            env={**variables_for(kind, os.environ), **(environment or {})},
            # A group of its own: `killpg` reaches all of it, the terminal's Ctrl-C none of it.
            start_new_session=True,
        )
    return ChildProcess(process, log)
