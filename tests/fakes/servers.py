"""Servers of others, as they are: started on a free port, ended with the test."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@contextmanager
def running(
    command: Sequence[str], *, ready: str, log: Path, within: float = 30, settings: Mapping[str, str] | None = None
) -> Iterator[None]:
    """While `command` runs, once it answers at the URL `ready`, which it must `within` so many seconds.

    `settings` are environment variables beside our own.
    """
    environment = {**os.environ, **(settings or {})}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True, env=environment)
    try:
        until = time.monotonic() + within
        while not _answers(ready):
            assert process.poll() is None and time.monotonic() < until, log.read_text()
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        # Also what it started, and a server that takes its time: nothing may be left for the next test.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1):
            return True
    except OSError:
        return False
