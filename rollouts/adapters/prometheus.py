"""Prometheus as a process of this machine, one for all regions of a fleet host."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from rollouts import scrape
from rollouts.adapters import ports, process
from rollouts.adapters.files import replace_json
from rollouts.adapters.http import Http
from rollouts.adapters.process import ChildProcess
from rollouts.errors import Unreachable
from rollouts.xds import LOOPBACK
from tidegate.core.errors import OutsideError

START_SECONDS = 60.0
"""After a kill it first replays what it had not yet written to disk."""

POLL_SECONDS = 0.05
STOP_SECONDS = 10.0

RETENTION = "1d"
"""Longer than any delivery; what is to stay of one is in the ledger."""


def binary() -> str:
    """Prometheus on PATH.

    Raises:
        OutsideError: when there is none.
    """
    found = shutil.which("prometheus")
    if found is None:
        raise OutsideError("prometheus is not installed", hint="apt-get install prometheus")
    return found


class Prometheus:
    """One Prometheus process that scrapes what `scrape` is told."""

    def __init__(self, folder: Path, http: Http) -> None:
        """`folder` is its own: configuration, log and data."""
        self._folder = folder
        self._http = http
        self._port = ports.free_port()
        self._targets: list[scrape.Json] = []
        self._child: ChildProcess | None = None
        self.url = f"http://{LOOPBACK}:{self._port}"

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._child is not None and self._child.alive

    async def start(self) -> None:
        """Return when it answers queries; also right after it died.

        Raises:
            OutsideError: when it is not there or does not come up.
        """
        program = binary()
        self._folder.mkdir(parents=True, exist_ok=True)
        replace_json(self._targets_file, self._targets)
        # JSON is YAML.
        replace_json(self._folder / "prometheus.yml", scrape.config(self._targets_file))
        await self.stop()
        self._child = process.start([program, *self._arguments()], log=self._folder / "prometheus.log")
        await self._until_ready(self._child)

    def scrape(self, targets: list[scrape.Json]) -> None:
        """Scrape these from now on; saying the same again costs nothing."""
        if targets != self._targets:
            self._targets = targets
            replace_json(self._targets_file, targets)

    async def stop(self) -> None:
        """End it; what it has gathered stays."""
        if self._child is not None:
            await self._child.stop(grace_seconds=STOP_SECONDS)

    @property
    def _targets_file(self) -> Path:
        return self._folder / "targets.json"

    def _arguments(self) -> list[str]:
        return [
            f"--config.file={self._folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--storage.tsdb.retention.time={RETENTION}",
            f"--web.listen-address={LOOPBACK}:{self._port}",
            "--log.level=warn",
        ]

    async def _until_ready(self, child: ChildProcess) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + START_SECONDS
        while not await self._is_ready():
            if not child.alive or loop.time() > deadline:
                tail = child.tail()
                await self.stop()
                raise OutsideError("prometheus did not start", hint=f"see {child.log}", detail=tail)
            await asyncio.sleep(POLL_SECONDS)

    async def _is_ready(self) -> bool:
        try:
            return (await self._http.get(f"{self.url}/-/ready")).ok
        except Unreachable:
            return False
