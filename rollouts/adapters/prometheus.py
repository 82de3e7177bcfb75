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
from tidegate.core.errors import OutsideError, Refused, TidegateError
from tidegate.core.files import replace_file
from tidegate.core.model import Json

START_SECONDS = 60.0
"""After a kill it first replays what it had not yet written to disk."""

RELOAD_SECONDS = 30.0
"""It waits for evaluations that run before it takes new rules."""

POLL_SECONDS = 0.05
STOP_SECONDS = 10.0

RETENTION = "1d"
"""Longer than any delivery; what is to stay of one is in the ledger."""

_REFUSED = re.compile(r'msg="loading groups failed" err="((?:[^"\\]|\\.)*)"')
"""How its log says what is wrong with rules; its answer to a reload says only that something is."""


def binary() -> str:
    """Prometheus on PATH.

    Raises:
        OutsideError: when there is none.
    """
    found = shutil.which("prometheus")
    if found is None:
        raise OutsideError("prometheus is not installed", hint="apt-get install prometheus")
    return found


_LOADED = re.compile(r"^prometheus_config_last_reload_(\w+) (\S+)$", re.MULTILINE)


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
        """Return when it evaluates the rules of this rule file and no others; saying the same again costs nothing.

        Raises:
            Refused: when it finds fault with them; it goes on with those of before.
            OutsideError: when it does not answer; it goes on with those of before once it is back.
        """
        async with self._changing:
            if text == self._rules:
                return
            # One that is dead is started with the rules of before.
            if not self.alive:
                await self._start()
            replace_file(self._rules_file, text)
            try:
                await self._reload()
            except TidegateError:
                replace_file(self._rules_file, self._rules)
                # Else it would report a configuration that failed for as long as it lives.
                with suppress(TidegateError):
                    await self._reload()
                raise
            self._rules = text

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
        program = binary()
        self._folder.mkdir(parents=True, exist_ok=True)
        replace_json(self._targets_file, self._targets)
        replace_file(self._rules_file, self._rules)
        # JSON is YAML.
        configuration = self._folder / "prometheus.yml"
        replace_json(configuration, scrape_config.config(self._targets_file, self._rules_file))
        await self.stop()
        command = [
            program,
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
        try:
            return (await self._http.get(f"{self.url}/-/ready")).is_success
        except Unreachable:
            return False

    async def _reload(self) -> None:
        assert self._child is not None, "nothing runs that could reload"
        child, said = self._child, self._child.log.stat().st_size
        well_before, before = await self._loaded()
        # Not by HTTP (`--web.enable-lifecycle`): the one who may send to a port of the loopback could end it too.
        child.hang_up()
        deadline = time.monotonic() + RELOAD_SECONDS
        while True:
            well, at = await self._loaded()
            if at > before:
                return
            found = _REFUSED.findall(child.log.read_bytes()[said:].decode(errors="replace"))
            if not well and (well_before or found):
                # Without what only a log needs.
                plain = (text.replace('\\"', '"').replace("\\n", " ") for text in found)
                words = "; ".join(text.removeprefix(f"{self._rules_file}: ") for text in plain)
                raise Refused(
                    f"prometheus refuses the rules: {words or 'see its log'}",
                    hint="mend the SLO that they come from",
                )
            if time.monotonic() > deadline:
                raise Unreachable("prometheus did not read its rules", hint=f"see {child.log}")
            await asyncio.sleep(POLL_SECONDS)

    async def _loaded(self) -> tuple[bool, float]:
        """Whether its last reading of the configuration went well, and the Unix time of the last that did."""
        text = (await self._http.get(f"{self.url}/metrics", timeout=RELOAD_SECONDS)).text
        told = {name: float(value) for name, value in _LOADED.findall(text)}
        return told.get("successful") == 1, told.get("success_timestamp_seconds", 0.0)
