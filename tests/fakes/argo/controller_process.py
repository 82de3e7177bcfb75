"""Starts and ends `fakes.argo.process`."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import DEVNULL, PIPE

from rollouts.kube.ports import Cluster
from rollouts.kube.resources import CONFIG_MAPS

TESTS = Path(__file__).parents[2]
SWITCHES = "rollouts-controller-switches"
_READY_WITHIN_SECONDS = 60.0
_ENDS_WITHIN_SECONDS = 20.0


class ControllerProcess:
    """For one namespace. Whoever starts it ends it, in any event loop."""

    def __init__(
        self, namespace: str, log: Path, *, context: str | None = None, kubeconfig: str | Path | None = None
    ) -> None:
        """`log` is a file; without `context` and `kubeconfig` those in use."""
        self._namespace = namespace
        self._log = log
        self._access = [f"--context={context}"] if context else []
        self._access += [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
        self._process: subprocess.Popen[str] | None = None
        self.metrics = ""
        """Where its metrics are, once it was started."""

    @property
    def log(self) -> str:
        """What it complained of, all its lives together."""
        return self._log.read_text() if self._log.exists() else ""

    async def start(self) -> None:
        """Returns once it knows what is there."""
        arguments = [f"--namespace={self._namespace}", f"--control={self._namespace}/{SWITCHES}", "--metrics-port=0"]
        command = (sys.executable, "-m", "fakes.argo.process", *self._access, *arguments)
        environment = {**os.environ, "PYTHONPATH": str(TESTS)}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=DEVNULL, stdout=PIPE, stderr=log, env=environment, cwd=TESTS.parent, text=True
            )
        assert self._process.stdout is not None
        async with asyncio.timeout(_READY_WITHIN_SECONDS):
            line = await asyncio.to_thread(self._process.stdout.readline)
        assert line.startswith("ready"), self.log
        self.metrics = str(re.findall(r"http://\S+", line)[0])

    @property
    def lives(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def kill(self) -> None:
        """As `kill -9`."""
        if self._process is not None and self.lives:
            self._process.kill()
            await self.ended()

    def freeze(self, frozen: bool) -> None:
        """Let it hang, or go on."""
        if self._process is not None and self.lives:
            self._process.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)

    async def end(self) -> int | None:
        """In good order; its exit status, or None when it does not run."""
        if self._process is None or not self.lives:
            return None
        self.freeze(False)
        self._process.terminate()
        return await self.ended()

    async def ended(self) -> int:
        """Its exit status, once it has one."""
        assert self._process is not None and self._process.stdout is not None
        code = await asyncio.to_thread(self._process.wait, _ENDS_WITHIN_SECONDS)
        self._process.stdout.close()
        return code


class Beside:
    """A `fakes.argo.stage.Controller`: the process, and its switches in the cluster."""

    def __init__(self, process: ControllerProcess, client: Cluster) -> None:
        self.process = process
        self._client = client

    async def kill(self) -> None:
        await self.process.kill()

    async def start(self) -> None:
        await self.process.start()

    async def break_plugin(self, broken: bool) -> None:
        await self._switch(plugin_broken=str(broken).lower())

    async def end_analyses(self, phase: str) -> None:
        await self._switch(analysis=phase)

    async def reset(self) -> None:
        """Nothing is wrong any more."""
        await self._switch(plugin_broken="false", analysis="Running")

    async def _switch(self, **values: str) -> None:
        metadata = {"name": SWITCHES, "namespace": self._client.namespace}
        body = {"apiVersion": "v1", "kind": CONFIG_MAPS.kind, "metadata": metadata, "data": values}
        await self._client.apply(body)
