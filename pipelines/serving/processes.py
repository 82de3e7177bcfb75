"""Deliveries as processes of this machine."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from registry.triggers.model import Entry
from tidegate.core.errors import OutsideError


class Processes:
    """Starts `tidegate deliver`, apart from this process: whoever restarts the receiver stops no delivery."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], logs: Path) -> None:
        """`command` lacks the version only; what it says goes into a file for each try below `logs`."""
        self._command, self._environment, self._logs = tuple(command), dict(environment), logs
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    async def start(self, entry: Entry) -> str:
        self._logs.mkdir(parents=True, exist_ok=True)
        log = self._logs / f"{entry.number}-{entry.tries}.log"
        command = [*self._command, "--version", entry.wish.version]
        try:
            with log.open("wb") as output:
                child = subprocess.Popen(
                    command,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
        except OSError as error:
            raise OutsideError(f"{command[0]} cannot be started: {error.strerror}") from error
        run = _name(psutil.Process(child.pid))
        # Or it would stay in the process table after its end, for as long as we run.
        threading.Thread(target=child.wait, daemon=True).start()
        self._children[run] = child
        return run

    async def runs(self, entry: Entry) -> bool:
        if entry.run is None:
            return False
        child = self._children.get(entry.run)
        if child is not None:
            return child.poll() is None
        try:
            return _name(psutil.Process(int(entry.run.split()[1]))) == entry.run
        except psutil.NoSuchProcess:
            return False


def _name(process: psutil.Process) -> str:
    """A process and when it began: the system uses numbers again."""
    return f"process {process.pid} of {process.create_time():.2f}"
