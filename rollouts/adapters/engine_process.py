"""Engines as processes of this machine."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import suppress
from pathlib import Path

from rollouts.adapters import process, sockets
from rollouts.adapters.http import Http
from rollouts.adapters.process import ChildProcess
from rollouts.errors import EngineDidNotStart, Unreachable
from rollouts.local.machine import Admission
from rollouts.local.xds import LOOPBACK
from rollouts.model import PORT, REGION, Engine
from tidegate.core.children import Child
from tidegate.core.clock import Clock

START_SECONDS = 600.0
"""A compile without any cache takes 105 s of a 135M model on two cores."""

STOP_SECONDS = 50.0
"""Above the 30 s that an engine gives to open answers, and the 15 s that it may then take to end."""

POLL_SECONDS = 0.1
"""Between two looks at the health of an engine that starts."""

WARM_UP_SECONDS = 60.0
"""For one of these answers; the first that an engine ever gives is the slowest."""

WARM_UP_PROMPTS = (
    "Hello!",
    "Say one word.",
    "Name three rivers, and for each of them one town that lies on it.",
)

WARM_UP_TOKENS = 2
"""The first comes of reading the prompt, the second of going on; a third would go the second's way again."""

_BUSY = re.compile(r"^vllm:num_requests_(?:running|waiting)(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE)

log = logging.getLogger(__name__)


class EngineProcess:
    """A `RunningEngine`: one process that listens on the loopback."""

    def __init__(self, engine: Engine, port: int, child: ChildProcess, http: Http) -> None:
        """`child` is the process as it was started, healthy or not yet."""
        self.engine = engine
        self.port = port
        self.url = f"http://{LOOPBACK}:{port}"
        self.child = child
        self._http = http

    @property
    def alive(self) -> bool:
        return self.child.alive

    def tail(self) -> str:
        return self.child.tail()

    async def busy(self) -> int:
        try:
            reply = await self._http.get(f"{self.url}/metrics", timeout=5)
        except Unreachable:
            # Nothing runs on a dead engine. A living one that does not answer may well have streams.
            if not self.alive:
                return 0
            raise
        return int(sum(float(count) for count in _BUSY.findall(reply.text)))

    async def stop(self) -> None:
        await self.child.stop(grace_seconds=STOP_SECONDS)

    async def abandon(self) -> None:
        self.child.kill()

    async def warm_up(self) -> None:
        """Ask a few short things, so that no user meets the slowness of first requests.

        Raises:
            EngineDidNotStart: when it is healthy but does not answer.
        """
        await self._ask(WARM_UP_PROMPTS[-1])
        # A batch takes other paths through the engine than a single prompt.
        await asyncio.gather(*map(self._ask, WARM_UP_PROMPTS))

    async def _ask(self, prompt: str) -> None:
        body = {
            "model": self.engine.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": WARM_UP_TOKENS,
            "temperature": 0,
        }
        try:
            reply = await self._http.post(f"{self.url}/v1/chat/completions", json=body, timeout=WARM_UP_SECONDS)
        except Unreachable as error:
            raise self.failed("is healthy but does not answer a chat") from error
        if not reply.is_success:
            raise self.failed(f"answers its first chat with status {reply.status_code}: {reply.text[:200]}")

    async def until_healthy(self, clock: Clock, seconds: float) -> None:
        """Return once it says so itself.

        Raises:
            EngineDidNotStart: it died, or took longer than `seconds`.
        """
        deadline = clock.monotonic() + seconds
        while True:
            with suppress(Unreachable):
                if (await self._http.get(f"{self.url}{self.engine.ready_path}", timeout=1)).is_success:
                    return
            if not self.alive:
                raise self.failed("died while it started")
            if clock.monotonic() > deadline:
                raise self.failed(f"was not healthy after {seconds:g} s")
            await clock.sleep(POLL_SECONDS)

    def failed(self, what: str) -> EngineDidNotStart:
        """The error that says `what` happened, with the end of the engine's log."""
        error = self.child.first_error()
        because = f": {error}" if error else ""
        return EngineDidNotStart(
            f"the engine of version {self.engine.version} {what}{because}",
            hint=f"see {self.child.log}",
            detail=self.tail(),
        )


class EngineProcesses:
    """The `EngineRunner` of one region."""

    def __init__(
        self,
        region: str,
        *,
        logs: Path,
        http: Http,
        admission: Admission,
        clock: Clock,
        start_seconds: float = START_SECONDS,
    ) -> None:
        """`admission` is shared by all regions of the machine; `start_seconds` is the deadline for health."""
        self._region, self._logs, self._http = region, logs, http
        self._admission, self._clock, self._start_seconds = admission, clock, start_seconds

    async def start(self, engine: Engine, *, port: int | None = None, log_file: Path | None = None) -> EngineProcess:
        # From before the process is there: two regions that start at once must not both see the same free memory. Until
        # it is ready: while it loads, the machine's numbers show less than it will need.
        with self._admission.starting(engine):
            begun, port = self._clock.monotonic(), port or sockets.free_port()
            started = f"{self._clock.now():%Y%m%dT%H%M%S%f}"
            child = process.start(
                [part.replace(PORT, str(port)).replace(REGION, self._region) for part in engine.command],
                kind=Child.ENGINE,
                log=log_file or self._logs / f"{self._region}-{engine.version}-{started}.log",
                workdir=Path(engine.workdir),
                environment=engine.environment,
            )
            running = EngineProcess(engine, port, child, self._http)
            try:
                await running.until_healthy(self._clock, self._start_seconds)
                await running.warm_up()
            except BaseException:
                # Cancelled or failed: an engine that is unknown must not stay.
                await running.abandon()
                raise
        log.info("%s: version %s is ready after %.1f s", self._region, engine.version, self._clock.monotonic() - begun)
        return running
