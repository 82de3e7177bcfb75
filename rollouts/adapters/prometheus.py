"""Prometheus as a process of this machine, one for all regions of a fleet host."""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path

from rollouts.adapters import process, sockets
from rollouts.adapters.http import Http
from rollouts.adapters.process import ChildProcess
from rollouts.errors import Unreachable
from rollouts.local import scrape_config
from rollouts.local.locks import replace_json
from rollouts.local.xds import LOOPBACK
from tidegate.core.children import Child
from tidegate.core.errors import OutsideError, Refused
from tidegate.core.files import replace_file
from tidegate.core.model import Json

START_SECONDS = 60.0
"""After a kill it first replays what it had not yet written to disk."""

POLL_SECONDS = 0.05
STOP_SECONDS = 10.0

RETENTION = "1d"
"""Longer than any delivery; what is to stay of one is in the ledger."""

_REFUSED = re.compile(r'msg="loading groups failed" err="((?:[^"\\]|\\.)*)"')
"""How its log says what is wrong with rules, before it ends."""


def binary() -> str:
    """Prometheus on PATH.

    Raises:
        OutsideError: when there is none.
    """
    found = shutil.which("prometheus")
    if found is None:
        raise OutsideError("prometheus is not installed", hint="apt-get install prometheus")
    return found


class PrometheusProcess:
    """One Prometheus process that scrapes what `scrape` is told."""

    def __init__(self, folder: Path, http: Http) -> None:
        """`folder` is its own: configuration, log and data."""
        self._folder, self._http = folder, http
        self._port = sockets.free_port()
        self._targets_file, self._targets = folder / "targets.json", list[Json]()
        self._rules_file, self._rules = folder / "rules.yml", ""
        self._child: ChildProcess | None = None
        self._changing = asyncio.Lock()
        self.url = f"http://{LOOPBACK}:{self._port}"

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._child is not None and self._child.alive

    async def start(self) -> None:
        """Return when it answers queries; also right after it died. The rules are those of before its death.

        Raises:
            OutsideError: when it is not there or does not come up.
        """
        async with self._changing:
            if not self.alive:
                await self._start()

    async def load_rules(self, text: str) -> None:
        """Start it again with the rules of this rule file and no others; saying the same again costs nothing.

        Not by a reload: `--web.enable-lifecycle` lets anybody who may send to a port of the loopback end it.

        Raises:
            Refused: when it finds fault with them; it goes on with those of before.
            OutsideError: when it does not come up.
        """
        async with self._changing:
            before, self._rules = self._rules, text
            if text == before:
                return
            try:
                await self._start()
            except OutsideError as error:
                self._rules = before
                await self._start()
                found = _REFUSED.search(error.detail or "")
                if found is None:
                    raise
                # Without what only a log needs.
                words = found[1].replace('\\"', '"').replace("\\n", " ").removeprefix(f"{self._rules_file}: ")
                hint = "mend the SLO that they come from"
                raise Refused(f"prometheus refuses the rules: {words}", hint=hint) from error

    def scrape(self, targets: list[Json]) -> None:
        """Scrape these from now on; saying the same again costs nothing."""
        if targets != self._targets:
            self._targets = targets
            replace_json(self._targets_file, targets)

    async def stop(self) -> None:
        """End it; what it has gathered stays."""
        if self._child is not None:
            await self._child.stop(grace_seconds=STOP_SECONDS)

    async def _start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        replace_json(self._targets_file, self._targets)
        replace_file(self._rules_file, self._rules)
        # JSON is YAML.
        configuration = self._folder / "prometheus.yml"
        replace_json(configuration, scrape_config.config(self._targets_file, self._rules_file))
        await self.stop()
        command = [
            binary(),
            f"--config.file={configuration}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--storage.tsdb.retention.time={RETENTION}",
            f"--web.listen-address={LOOPBACK}:{self._port}",
            "--log.level=warn",
        ]
        child = self._child = process.start(command, kind=Child.PROMETHEUS, log=self._folder / "prometheus.log")
        deadline = time.monotonic() + START_SECONDS
        while not await self._is_ready():
            if not child.alive or time.monotonic() > deadline:
                tail = child.tail()
                await self.stop()
                raise OutsideError("prometheus did not start", hint=f"see {child.log}", detail=tail)
            await asyncio.sleep(POLL_SECONDS)

    async def _is_ready(self) -> bool:
        with suppress(Unreachable):
            return (await self._http.get(f"{self.url}/-/ready")).is_success
        return False
