"""Prometheus as a process of this machine, one for all regions of a fleet host."""

from __future__ import annotations

import asyncio
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rollouts.adapters import process, sockets
from rollouts.adapters.http import Http
from rollouts.adapters.process import ChildProcess
from rollouts.errors import RulesRefused, Unreachable
from rollouts.local import scrape_config
from rollouts.local.state_folder import replace_json
from rollouts.local.xds import LOOPBACK
from tidegate.core.children import Child
from tidegate.core.errors import OutsideError, TidegateError
from tidegate.core.files import replace_file
from tidegate.core.model import Json

START_SECONDS = 60.0
"""After a kill it first replays what it had not yet written to disk."""

RELOAD_SECONDS = 30.0
"""It waits for evaluations that run before it takes new rules."""

DYING_SECONDS = 2.0
"""Between its last answer and the end of its process group, which its guard ends."""

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


@dataclass(frozen=True)
class _Loaded:
    """The end of a reading of its configuration."""

    well: bool
    """Of the last one."""
    at: float
    """Unix time of the last that was well."""


class PrometheusProcess:
    """One Prometheus process that scrapes what `scrape` is told."""

    def __init__(self, folder: Path, http: Http) -> None:
        """`folder` is its own: configuration, log and data."""
        self._folder = folder
        self._http = http
        self._port = sockets.free_port()
        self._targets: list[Json] = []
        self._rules = ""
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
            RulesRefused: when it finds fault with them; it goes on with those of before.
            OutsideError: when it does not answer; it goes on with those of before once it is back.
        """
        async with self._changing:
            if text == self._rules:
                return
            try:
                await self._read(text)
            except TidegateError:
                replace_file(self._rules_file, self._rules)
                # Else it would report a configuration that failed for as long as it lives.
                with suppress(TidegateError):
                    await self._reload()
                raise
            self._rules = text

    async def _read(self, rules: str) -> None:
        """Make it read `rules`, also one that died just now and no one knows yet."""
        try:
            await self._read_once(rules)
        except Unreachable:
            if self._child is not None and not await self._child.ends_within(DYING_SECONDS):
                raise
            await self._read_once(rules)

    async def _read_once(self, rules: str) -> None:
        """One that is dead is first started again with the rules of before."""
        if not self.alive:
            await self._start()
        replace_file(self._rules_file, rules)
        await self._reload()

    async def _start(self) -> None:
        program = binary()
        self._folder.mkdir(parents=True, exist_ok=True)
        replace_json(self._targets_file, self._targets)
        replace_file(self._rules_file, self._rules)
        # JSON is YAML.
        replace_json(self._folder / "prometheus.yml", scrape_config.config(self._targets_file, self._rules_file))
        await self.stop()
        log = self._folder / "prometheus.log"
        self._child = process.start([program, *self._arguments()], kind=Child.PROMETHEUS, log=log)
        await self._until_ready(self._child)

    def scrape(self, targets: list[Json]) -> None:
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

    @property
    def _rules_file(self) -> Path:
        return self._folder / "rules.yml"

    def _arguments(self) -> list[str]:
        return [
            f"--config.file={self._folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--storage.tsdb.retention.time={RETENTION}",
            f"--web.listen-address={LOOPBACK}:{self._port}",
            "--log.level=warn",
        ]

    async def _reload(self) -> None:
        assert self._child is not None, "nothing runs that could reload"
        read = self._child.log.stat().st_size
        before = await self._loaded()
        # Not by HTTP (`--web.enable-lifecycle`): the one who may send to a port of the loopback could end it too.
        self._child.hang_up()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RELOAD_SECONDS
        while (now := await self._loaded()).at <= before.at:
            found = _REFUSED.findall(self._child.log.read_bytes()[read:].decode(errors="replace"))
            if not now.well and (before.well or found):
                raise RulesRefused(
                    f"prometheus refuses the rules: {self._words(found) or 'see its log'}",
                    hint="mend the SLO that they come from",
                )
            if loop.time() > deadline:
                raise Unreachable("prometheus did not read its rules", hint=f"see {self._child.log}")
            await asyncio.sleep(POLL_SECONDS)

    async def _loaded(self) -> _Loaded:
        """How its last reading of the configuration ended, as its own metrics say."""
        text = (await self._http.get(f"{self.url}/metrics", timeout_seconds=RELOAD_SECONDS)).text
        told = {name: float(value) for name, value in _LOADED.findall(text)}
        return _Loaded(well=told.get("successful") == 1, at=told.get("success_timestamp_seconds", 0.0))

    def _words(self, found: list[str]) -> str:
        """What its log says, without what only a log needs."""
        plain = (text.replace('\\"', '"').replace("\\n", " ") for text in found)
        return "; ".join(text.removeprefix(f"{self._rules_file}: ") for text in plain)

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
