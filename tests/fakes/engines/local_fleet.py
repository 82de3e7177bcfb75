"""What tests of a local fleet start it with, how they reach into it, and users who stream chats through its entry.

Users count what was cut.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Self

import psutil

from rollouts.adapters import host_client
from rollouts.adapters.host_client import FleetHost
from rollouts.model import PORT, Engine, EngineSet

DONE = b"data: [DONE]"


@dataclass(frozen=True)
class Request:
    """One request as its user saw it."""

    started: float
    """Seconds of the monotonic clock."""
    answered: float | None
    """When the first byte came back: the engine had the request by then."""
    role: str | None
    version: str | None
    status: int | None
    """None when there was no answer at all."""
    whole: bool
    """Whether the stream came to its end."""
    error: str | None = None
    """Why the connection failed."""


class Users:
    """Open-loop load: a new user at a fixed pace, whatever the earlier ones wait for."""

    def __init__(
        self,
        entry: str,
        *,
        model: str = "support-llm",
        per_second: float = 40,
        max_tokens: int | None = None,
        host: str | None = None,
        prompts: Sequence[str] = ("Hello!",),
    ) -> None:
        """`host` is asked for at `entry`; `prompts` are asked in turn."""
        self._address = entry.removeprefix("http://").split(":")
        self._pause = 1 / per_second
        told = f"host: {host or entry.removeprefix('http://')}\r\n"
        more = {"max_tokens": max_tokens} if max_tokens else {}
        self._messages = cycle([_message(model, prompt, told, more) for prompt in prompts])
        self._in_flight: set[asyncio.Task[None]] = set()
        self.requests: list[Request] = []

    async def __aenter__(self) -> Self:
        self._arrivals = asyncio.create_task(self._arrive())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._arrivals.cancel()
        await asyncio.gather(self._arrivals, return_exceptions=True)
        await asyncio.gather(*self._in_flight)

    @property
    def failed(self) -> list[Request]:
        """Requests that got an error, or no whole stream."""
        return [request for request in self.requests if request.status != 200 or not request.whole]

    def by_role(self) -> Counter[str | None]:
        """How many requests each role answered."""
        return Counter(request.role for request in self.requests)

    async def _arrive(self) -> None:
        while True:
            task = asyncio.create_task(self._ask())
            self._in_flight.add(task)
            task.add_done_callback(self._in_flight.discard)
            await asyncio.sleep(self._pause)

    async def _ask(self) -> None:
        started = time.monotonic()
        answered, answer, error = None, b"", None
        try:
            reader, writer = await asyncio.open_connection(*self._address)
            try:
                writer.write(next(self._messages))
                while piece := await reader.read(65536):
                    answered = answered or time.monotonic()
                    answer += piece
            finally:
                writer.close()
        except OSError as failure:
            # Refused or reset: what came until then says how far it got.
            error = repr(failure)
        self.requests.append(_request(started, answered, answer, error))


def _message(model: str, prompt: str, told: str, more: Mapping[str, int]) -> bytes:
    operation = {"model": model, "messages": [{"role": "user", "content": prompt}], "stream": True, **more}
    body = json.dumps(operation).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\n{told}content-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body


def _request(started: float, answered: float | None, answer: bytes, error: str | None) -> Request:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return Request(
        started=started,
        answered=answered,
        role=headers.get("x-tidegate-role"),
        version=headers.get("x-tidegate-version"),
        status=int(first.split()[1]) if first else None,
        whole=DONE in body,
        error=error,
    )


STAND_IN = Path(__file__).with_name("stand_in_engine.py")
REGION = "eu-west-1"


def stand_in(version: str, *arguments: str) -> Engine:
    """An engine that streams ten tokens in 0.2 s."""
    return Engine(
        version=version,
        digest=f"sha256-of-{version}",
        model="support-llm",
        command=(sys.executable, str(STAND_IN), "--port", PORT, *arguments),
        workdir=str(STAND_IN.parent),
        memory_bytes=64 << 20,
    )


@contextmanager
def delivery(state: Path) -> Iterator[None]:
    """Hold the lock that says a delivery runs."""
    state.mkdir(exist_ok=True)
    with (state / "delivery.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@asynccontextmanager
async def fleet_host(state: Path) -> AsyncIterator[FleetHost]:
    """A host with one region, while a delivery runs."""
    with delivery(state):
        host = await host_client.start(state, {REGION: None}, owned=True)
        yield host
        await host.stop()


REGIONS_OF_A_HOST = 4
"""Of a shared one: so few that the engines of tests that are over do not fill the memory."""


class SharedHosts:
    """Hosts one after the other, while deliveries run; each test gets a region of its own that is empty."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._hosts = folder, 0
        self._lock, self._free = ExitStack(), list[str]()
        self._started: FleetHost | None = None

    @asynccontextmanager
    async def region(self) -> AsyncIterator[tuple[FleetHost, str]]:
        """A host, and the region of it that is this test's."""
        if not self._free:
            await self.stop()
            self._hosts += 1
            self._lock.enter_context(delivery(self.state))
            self._free = [f"{REGION}-{number}" for number in range(REGIONS_OF_A_HOST)]
            self._started = await host_client.start(self.state, dict.fromkeys(self._free), owned=True)
            await self._started.close()
        # Of this test's loop.
        host = await host_client.attach(self.state)
        assert host is not None
        yield host, self._free.pop()
        await host.close()

    @property
    def state(self) -> Path:
        """The state folder of the host that runs."""
        return self._folder / f"state-{self._hosts}"

    async def stop(self) -> None:
        """End the host that runs, if one does."""
        if self._started is not None:
            await self._started.stop()
        self._started, self._free = None, []
        self._lock.close()


def process_of(arm: EngineSet | None) -> psutil.Process:
    """The process that listens at the arm's address, not its guard."""
    assert arm is not None
    port = arm.url.rpartition(":")[2]
    return newest_with(port)


def newest_with(argument: str) -> psutil.Process:
    """The last process that was started with that argument."""
    return [process for process in psutil.process_iter() if argument in arguments_of(process)][-1]


def arguments_of(process: psutil.Process) -> list[str]:
    """Its command line; nothing when it is gone or a zombie."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


async def kill(process: psutil.Process) -> float:
    """Returns when it is dead, as the loop's time: until then the kernel still takes connections for it."""
    process.kill()
    with suppress(psutil.NoSuchProcess):
        while process.status() != psutil.STATUS_ZOMBIE:
            await asyncio.sleep(0.001)
    return asyncio.get_running_loop().time()
