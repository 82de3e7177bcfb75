"""Engines as processes of this machine."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path

from rollouts.adapters import process, sockets
from rollouts.adapters.http import Http
from rollouts.adapters.process import ChildProcess
from rollouts.errors import EngineDidNotStart, Unreachable
from rollouts.local.machine import Admission, Ticket
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

    def __init__(
        self, engine: Engine, port: int, child: ChildProcess, http: Http, *, ticket: Ticket, admission: Admission
    ) -> None:
        """`child` is the process as it was started, healthy or not yet; its place on the machine ends with it."""
        self.engine = engine
        self.port = port
        self.url = f"http://{LOOPBACK}:{port}"
        self._child = child
        self._http = http
        self._ticket = ticket
        self._admission = admission

    @property
    def alive(self) -> bool:
        return self._child.alive

    def tail(self) -> str:
        return self._child.tail()

    def memory_bytes(self) -> int:
        """Proportional set size of all its processes: what several share is counted once."""
        return self._child.memory_bytes()

    async def busy(self) -> int:
        try:
            reply = await self._http.get(f"{self.url}/metrics", timeout_seconds=5)
        except Unreachable:
            # Nothing runs on a dead engine. A living one that does not answer may well have streams.
            if not self.alive:
                return 0
            raise
        return int(sum(float(count) for count in _BUSY.findall(reply.text)))

    async def stop(self) -> None:
        try:
            await self._child.stop(grace_seconds=STOP_SECONDS)
        finally:
            self._admission.release(self._ticket)

    async def abandon(self) -> None:
        """End it at once: no user waits for an answer of it."""
        self._child.kill()
        self._admission.release(self._ticket)

    async def healthy(self) -> bool:
        """Whether it says so itself."""
        try:
            return (await self._http.get(f"{self.url}{self.engine.ready_path}", timeout_seconds=1)).ok
        except Unreachable:
            return False

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
            reply = await self._http.post(f"{self.url}/v1/chat/completions", body, timeout_seconds=WARM_UP_SECONDS)
        except Unreachable as error:
            raise self.failed("is healthy but does not answer a chat") from error
        if not reply.ok:
            raise self.failed(f"answers its first chat with status {reply.status}: {reply.text[:200]}")

    def failed(self, what: str) -> EngineDidNotStart:
        """The error that says `what` happened, with the end of the engine's log."""
        error = self._child.first_error()
        because = f": {error}" if error else ""
        return EngineDidNotStart(
            f"the engine of version {self.engine.version} {what}{because}",
            hint=f"see {self._child.log}",
            detail=self.tail(),
        )


class EngineProcesses:
    """The `Engines` of one region."""

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
        self._region = region
        self._logs = logs
        self._http = http
        self._admission = admission
        self._clock = clock
        self._start_seconds = start_seconds

    async def start(self, engine: Engine, *, port: int | None = None, log_file: Path | None = None) -> EngineProcess:
        # Before the process is there: two regions that start at once must not both see the same free memory.
        ticket = self._admission.admit(engine)
        begun = self._clock.monotonic()
        running = self._spawn(ticket, port or sockets.free_port(), log_file)
        try:
            await self._until_healthy(running)
            await running.warm_up()
        except BaseException:
            # Cancelled or failed: an engine that is unknown must not stay.
            await running.abandon()
            raise
        # Only now: while it loads, the machine's numbers show less than it will need.
        ticket.settled = True
        log.info("%s: version %s is ready after %.1f s", self._region, engine.version, self._clock.monotonic() - begun)
        return running

    def _spawn(self, ticket: Ticket, port: int, log_file: Path | None) -> EngineProcess:
        engine = ticket.engine
        command = [part.replace(PORT, str(port)).replace(REGION, self._region) for part in engine.command]
        started = f"{self._clock.now():%Y%m%dT%H%M%S%f}"
        file = log_file or self._logs / f"{self._region}-{engine.version}-{started}.log"
        child = process.start(
            command,
            kind=Child.ENGINE,
            log=file,
            workdir=Path(engine.workdir),
            environment=engine.environment,
        )
        return EngineProcess(engine, port, child, self._http, ticket=ticket, admission=self._admission)

    async def _until_healthy(self, running: EngineProcess) -> None:
        deadline = self._clock.monotonic() + self._start_seconds
        while not await running.healthy():
            if not running.alive:
                raise running.failed("died while it started")
            if self._clock.monotonic() > deadline:
                raise running.failed(f"was not healthy after {self._start_seconds:g} s")
            await self._clock.sleep(POLL_SECONDS)
