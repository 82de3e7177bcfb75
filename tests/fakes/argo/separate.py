"""The simulated Argo Rollouts controller of one namespace as a process of its own, started and ended by tests."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path
from subprocess import DEVNULL, PIPE

from fakes.waiting import PATIENCE_SECONDS

TESTS = Path(__file__).parents[2]
"""A deadline for a broken controller only: one on a busy machine takes a minute to begin."""


class ControllerProcess:
    """For one namespace. Anyone who starts it ends it, in any event loop."""

    def __init__(
        self, namespace: str, log: Path, *, context: str | None = None, kubeconfig: str | Path | None = None
    ) -> None:
        """`log` is a file; without `context` and `kubeconfig` those in use."""
        self._namespace = namespace
        self._log = log
        self._access = [f"--context={context}"] if context else []
        self._access += [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
        self._process: subprocess.Popen[str] | None = None

    @property
    def log(self) -> str:
        """What it complained of, all its lives together."""
        return self._log.read_text() if self._log.exists() else ""

    async def start(self) -> None:
        """Returns once it knows what is there."""
        command = (sys.executable, "-m", "fakes.argo.process", *self._access, f"--namespace={self._namespace}")
        environment = {**os.environ, "PYTHONPATH": str(TESTS)}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=DEVNULL, stdout=PIPE, stderr=log, env=environment, cwd=TESTS.parent, text=True
            )
        assert self._process.stdout is not None
        # A process that ends says no line; one that hangs is ended, or its thread would wait for ever.
        hanging = threading.Timer(PATIENCE_SECONDS, self._process.kill)
        hanging.start()
        try:
            line = await asyncio.to_thread(self._process.stdout.readline)
        finally:
            hanging.cancel()
        assert line.startswith("ready"), self.log

    @property
    def lives(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def kill(self) -> None:
        """As `kill -9`."""
        if self._process is not None and self.lives:
            self._process.kill()
            await self.ended()

    async def end(self) -> int | None:
        """In good order; its exit status, or None when it does not run."""
        if self._process is None or not self.lives:
            return None
        self._process.terminate()
        return await self.ended()

    async def ended(self) -> int:
        """Its exit status, once it has one."""
        assert self._process is not None and self._process.stdout is not None
        code = await asyncio.to_thread(self._process.wait, PATIENCE_SECONDS)
        self._process.stdout.close()
        return code
