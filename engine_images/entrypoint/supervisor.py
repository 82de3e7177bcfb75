"""Process 1: starts vLLM, waits until the gate is ready, and drains it before vLLM is told to end.

Every wait is bounded: by the deadline of the start, by the grace of a drain, by a few seconds for vLLM's end. A drain
begins with SIGTERM, or with the cloud's notice that it takes the machine away, where asked for:
AWS (IMDSv2) announces two minutes before, Google Cloud thirty seconds before.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime, timezone
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from .channel import VARIABLE, Channel
from .journal import CUT, ENDED, DidNotStart, Died, EventLog, OutsideMissing
from .prepare import PreparedEngine, Settings
from .runtime_directory import RuntimeDirectory

PATIENCE_SECONDS = 2.0
POLL_SECONDS = 5.0
"""As AWS recommends."""

GCP_SECONDS = 30.0
RESERVE_SECONDS = 5.0
"""Of the announced time, for vLLM to end."""

# The metadata server is on this machine's own link: no proxy leads there.
_OPENER = build_opener(ProxyHandler({}))


def aws_notice(url: str) -> tuple[float, str] | None:
    """Of EC2: seconds until the instance is taken, and what was said; `instance-action` is there once it is to be.

    Raises:
        OSError: the metadata server does not answer.
    """
    token = _ask(f"{url}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, method="PUT")
    said = _ask(f"{url}/latest/meta-data/spot/instance-action", {"X-aws-ec2-metadata-token": token or ""})
    if said is None:
        return None
    at = datetime.strptime(json.loads(said)["time"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)  # noqa: UP017
    return (at - datetime.now(timezone.utc)).total_seconds(), said  # noqa: UP017 (Python 3.10)


def gcp_notice(url: str) -> tuple[float, str] | None:
    """Of Compute Engine: `preempted` turns to TRUE.

    Raises:
        OSError: the metadata server does not answer.
    """
    said = _ask(f"{url}/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"})
    return (GCP_SECONDS, "preempted") if said == "TRUE" else None


CLOUDS = {"aws": ("http://169.254.169.254", aws_notice), "gcp": ("http://metadata.google.internal", gcp_notice)}


def _ask(url: str, headers: dict[str, str], method: str = "GET") -> str | None:
    """The text at `url`; None when there is nothing (404)."""
    try:
        with _OPENER.open(Request(url, headers=headers, method=method), timeout=PATIENCE_SECONDS) as response:
            return str(response.read().decode().strip())
    except HTTPError as error:
        if error.code == 404:
            return None
        raise
    except HTTPException as error:
        raise OSError(str(error)) from error


GUARD = Path(__file__).resolve().with_name("guard.py")

ENDING_SECONDS = 10.0
"""For vLLM to end once it is told to, with nothing open."""


async def start_guarded(
    command: Sequence[str], environment: Mapping[str, str], workdir: Path, channel: socket.socket
) -> asyncio.subprocess.Process:
    """Start the guard, and through it `command`, which inherits `channel` under the same descriptor."""
    return await asyncio.create_subprocess_exec(
        # -I and -S: the guard runs nothing that a folder or the environment names.
        *(sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), *command),
        env=dict(environment),
        cwd=workdir,
        stdin=asyncio.subprocess.DEVNULL,
        pass_fds=(channel.fileno(),),
        # A group of its own: neither a Ctrl-C nor a signal to our group ends vLLM before it has drained.
        start_new_session=True,
    )


async def stop_guarded(process: asyncio.subprocess.Process) -> None:
    """Tell it to end, and see to it that nothing of it stays. Bounded."""
    if process.returncode is None:
        process.terminate()
        await asyncio.wait({asyncio.ensure_future(process.wait())}, timeout=ENDING_SECONDS)
    # Where nobody is left there is nothing to kill.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def require_free(host: str, port: int) -> None:
    """Return when we may listen there.

    vLLM would tell only after a minute of loading, with a traceback.

    Raises:
        OutsideMissing: another process listens there, or the address is not ours.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise OutsideMissing(f"port {port} of {host} cannot be taken: {error.strerror}") from error


DRAIN_MARGIN_SECONDS = 5.0
"""Above the grace: for the gate's own end of what it cut, and for its word of it."""


class Supervisor:
    """The life of one vLLM."""

    def __init__(self, prepared: PreparedEngine, settings: Settings, run: RuntimeDirectory, journal: EventLog) -> None:
        self._prepared = prepared
        self._settings = settings
        self._run = run
        self._journal = journal
        self._grace = prepared.engine.drain_seconds if settings.grace is None else settings.grace
        self._ready, self._told, self._drained = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._failure: str | None = None
        self._known: dict[str, object] = {}
        self._draining = False
        self._cut = False
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> int:
        """Serve until told to end; returns the exit code.

        Raises:
            DidNotStart: vLLM did not get ready.
            Died: it ended by itself.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end, number.name)
        ours, theirs = socket.socketpair()
        with theirs:
            child = await start_guarded(
                self._prepared.command, self._environment(theirs), self._run.folder, channel=theirs
            )
        self._dead = asyncio.ensure_future(child.wait())
        self._channel = await Channel.over(ours)
        self._spawn(self._listen())
        try:
            await self._until_ready()
            await self._until_ended()
        finally:
            for task in self._tasks:
                task.cancel()
            await stop_guarded(child)
            self._channel.close()
        return CUT if self._cut else ENDED

    def _environment(self, theirs: socket.socket) -> dict[str, str]:
        gate = replace(self._prepared.gate, channel=theirs.fileno(), launched=time.monotonic())
        return {**self._prepared.environment, VARIABLE: json.dumps(asdict(gate))}

    async def _until_ready(self) -> None:
        began = time.monotonic()
        begun = asyncio.ensure_future(self._ready.wait())
        told = asyncio.ensure_future(self._told.wait())
        await asyncio.wait(
            {begun, told, self._dead}, timeout=self._settings.start_deadline, return_when=asyncio.FIRST_COMPLETED
        )
        for waiting in (begun, told):
            waiting.cancel()
        if self._failure is not None:
            raise DidNotStart(f"vLLM is loaded, but does not answer its warm-up: {self._failure}")
        if self._told.is_set():
            return
        if self._dead.done():
            raise DidNotStart(f"vLLM ended with code {self._dead.result()} while it started; its reason stands above")
        if not self._ready.is_set():
            raise DidNotStart(f"vLLM was not ready after {self._settings.start_deadline:g} s")
        seconds = round(time.monotonic() - began, 1)
        self._journal.info("ready", seconds=seconds, port=self._settings.port, **self._known)
        if self._settings.spot != "off":
            self._spawn(self._watch_spot())

    async def _until_ended(self) -> None:
        await self._unless_dead(self._told.wait(), None)
        if self._ready.is_set():
            self._drain("told to end", self._grace, self._settings.linger)
            await self._unless_dead(self._drained.wait(), self._grace + DRAIN_MARGIN_SECONDS)
            if not self._drained.is_set():
                self._cut = True
                self._journal.error("the gate does not answer; what is open is lost")

    async def _unless_dead(self, awaited: Awaitable[object], timeout: float | None) -> None:
        """Wait for it, for `timeout` seconds.

        Raises:
            Died: vLLM ended meanwhile.
        """
        waiting = asyncio.ensure_future(awaited)
        await asyncio.wait({waiting, self._dead}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        done = waiting.done()
        waiting.cancel()
        if self._dead.done() and not done:
            raise Died(f"vLLM ended with code {self._dead.result()} while it served")

    def _end(self, name: str) -> None:
        """SIGTERM or SIGINT. A second one cuts short what the first one drains."""
        self._journal.info("told to end", by=name)
        if self._told.is_set() and self._draining:
            self._order_drain(0.0, 0.0)
        self._told.set()

    def _drain(self, because: str, grace: float, linger: float) -> None:
        """Tell the gate, once."""
        if not self._draining:
            self._draining = True
            self._journal.info("draining", because=because, grace_seconds=round(grace, 1))
            self._order_drain(grace, linger)

    def _order_drain(self, grace: float, linger: float) -> None:
        self._spawn(self._channel.send({"do": "drain", "grace_seconds": grace, "linger_seconds": linger}))

    async def _listen(self) -> None:
        """What the gate says."""
        while message := await self._channel.receive():
            event = message.pop("event")
            if event == "failed":
                self._failure = message["reason"]
                self._ready.set()
            elif event == "ready":
                self._journal.info(
                    "warmed up", batches=self._prepared.engine.warm_up, seconds=message.pop("warm_up_seconds")
                )
                self._known = message
                self._ready.set()
            elif event == "drained" and not self._drained.is_set():
                self._cut = bool(message["cut"] or message["stuck"])
                tell = self._journal.warning if self._cut else self._journal.info
                tell("drained", **message)
                self._drained.set()

    async def _watch_spot(self) -> None:
        """Drain as soon as the cloud announces that it takes the machine; SIGTERM follows, or the end."""
        url, notice_at = CLOUDS[self._settings.spot]
        reachable = True
        while not self._draining:
            try:
                notice = await asyncio.to_thread(notice_at, self._settings.spot_url or url)
            except OSError as error:
                if reachable:
                    self._journal.warning("the cloud's metadata cannot be read", reason=str(error))
                reachable, notice = False, None
            if notice is not None:
                seconds, said = max(0.0, notice[0] - RESERVE_SECONDS), notice[1]
                self._journal.warning("the cloud takes this machine", said=said, seconds=round(seconds, 1))
                self._drain("spot notice", min(self._grace, seconds), 0.0)
            await asyncio.sleep(POLL_SECONDS)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.ensure_future(work))
