"""Process 1: starts vLLM, waits until the gate is ready, and drains it before vLLM is told to end.

Every wait is bounded: by the deadline of the start, by the grace of a drain, by a few seconds for vLLM's end.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Awaitable, Coroutine
from typing import Any

from . import place, spot
from .channel import VARIABLE, Channel
from .child import Child
from .exits import CUT, ENDED, DidNotStart, Died
from .journal import Journal
from .orders import Orders
from .place import RunFolder
from .prepare import Prepared
from .settings import Settings

DRAIN_MARGIN_SECONDS = 5.0
"""Above the grace: for the gate's own end of what it cut, and for its word of it."""

CLOUDS: dict[str, type[spot.Aws] | type[spot.Gcp]] = {"aws": spot.Aws, "gcp": spot.Gcp}


class Supervisor:
    """The life of one vLLM."""

    def __init__(self, prepared: Prepared, settings: Settings, run: RunFolder, journal: Journal) -> None:
        self._prepared = prepared
        self._settings = settings
        self._run = run
        self._journal = journal
        self._grace = prepared.engine.drain_seconds if settings.grace is None else settings.grace
        self._ready, self._told, self._drained = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._failure: str | None = None
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
        loop.add_signal_handler(signal.SIGUSR1, self._leave)
        ours, theirs = socket.socketpair()
        with theirs:
            self._child = await Child.start(
                self._prepared.command, self._environment(theirs), self._run.folder, channel=theirs
            )
        self._dead = asyncio.ensure_future(self._child.ended())
        self._channel = await Channel.over(ours)
        self._spawn(self._listen())
        try:
            await self._until_ready()
            await self._until_ended()
        finally:
            for task in self._tasks:
                task.cancel()
            await self._child.stop()
            self._channel.close()
        return CUT if self._cut else ENDED

    def _environment(self, theirs: socket.socket) -> dict[str, str]:
        orders = Orders(
            channel=theirs.fileno(),
            warm_up=self._prepared.engine.warm_up,
            warm_up_seconds=self._settings.start_deadline,
            health_every_seconds=self._settings.health_every,
            health_within_seconds=self._settings.health_deadline,
            json_logs=self._settings.logs == "json",
            engine=self._prepared.status,
        )
        return {**self._prepared.environment, VARIABLE: orders.to_text()}

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
        self._journal.info("ready", seconds=round(time.monotonic() - began, 1), port=self._settings.port)
        self._run.write_state(place.READY)
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

    def _leave(self) -> None:
        """SIGUSR1: a preStop hook. SIGTERM follows."""
        if not self._ready.is_set():
            self._end("SIGUSR1")
        else:
            self._drain("preStop", self._grace, self._settings.linger)

    def _drain(self, because: str, grace: float, linger: float) -> None:
        """Tell the gate, once."""
        if not self._draining:
            self._draining = True
            self._journal.info("draining", because=because, grace_seconds=round(grace, 1))
            self._run.write_state(place.DRAINING)
            self._order_drain(grace, linger)

    def _order_drain(self, grace: float, linger: float) -> None:
        self._spawn(self._channel.say({"do": "drain", "grace_seconds": grace, "linger_seconds": linger}))

    async def _listen(self) -> None:
        """What the gate says."""
        while message := await self._channel.hear():
            event = message.pop("event")
            if event == "failed":
                self._failure = message["reason"]
                self._ready.set()
            elif event == "ready":
                self._journal.info(
                    "warmed up", batches=self._prepared.engine.warm_up, seconds=message["warm_up_seconds"]
                )
                self._ready.set()
            elif event == "drained":
                self._note_drained(message)

    def _note_drained(self, message: dict[str, Any]) -> None:
        if self._drained.is_set():
            return
        self._cut = bool(message["cut"] or message["stuck"])
        tell = self._journal.warning if self._cut else self._journal.info
        tell("drained", **message)
        self._run.write_state(place.CUT if self._cut else place.DRAINED)
        self._drained.set()

    async def _watch_spot(self) -> None:
        """Drain as soon as the cloud announces that it takes the machine; SIGTERM follows, or the end."""
        url = self._settings.spot_url
        cloud = CLOUDS[self._settings.spot](*([url] if url else []))
        reachable = True
        while not self._draining:
            try:
                notice = await asyncio.to_thread(cloud.notice)
            except OSError as error:
                if reachable:
                    self._journal.warning("the cloud's metadata cannot be read", reason=str(error))
                reachable, notice = False, None
            if notice is not None:
                self._journal.warning(
                    "the cloud takes this machine", said=notice.said, seconds=round(notice.seconds, 1)
                )
                self._drain("spot notice", min(self._grace, notice.seconds), 0.0)
            await asyncio.sleep(spot.POLL_SECONDS)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.ensure_future(work))
