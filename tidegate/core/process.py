"""What a use case shares with its process: lines for the person who waits, signals, addresses, variables.

A program that imports tidegate gets the lines from the logger `tidegate`, at level INFO; commands write them to stderr.
"""

from __future__ import annotations

import asyncio
import getpass
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from tidegate.core.errors import UsageError

TRUST_VARIABLE = "TIDEGATE_TRUST"
"""Where the operator's trust file is."""


_SINKS: list[Callable[[str], None]] = [lambda line: logging.getLogger("tidegate").info("%s", line)]


def note(line: str) -> None:
    """Pass a line on to the one who waits; from any thread."""
    _SINKS[-1](line)


@contextmanager
def notes_to(sink: Callable[[str], None]) -> Iterator[None]:
    """Within the context notes of this process go to `sink`."""
    _SINKS.append(sink)
    try:
        yield
    finally:
        _SINKS.remove(sink)


_ALWAYS = (signal.SIGINT, signal.SIGTERM)
"""A shell has SIGINT ignored by what it starts in the background; who sends it all the same means it."""
_UNLESS_IGNORED = (signal.SIGHUP, signal.SIGQUIT)
"""A hang-up that was ignored at the start stays so, which is what `nohup` asks for."""


@contextmanager
def on_after_hangup() -> Iterator[None]:
    """Within the context a terminal that closes ends nothing; for the main thread of a process."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


@asynccontextmanager
async def cancelled_by_signals(first: str = "every region goes back first") -> AsyncIterator[asyncio.Event]:
    """Within the context the first ending signal cancels the current task, and the next one sets the event.

    Ending signals are those of a person, a terminal or connection that closes, a node that drains. `first` says what is
    still done after the first.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None, "only a task can be cancelled"
    heard: list[signal.Signals] = []
    impatient = asyncio.Event()

    def hear(number: signal.Signals) -> None:
        heard.append(number)
        if len(heard) == 1:
            task.cancel()
            note(f"stopping: {first}")
        else:
            impatient.set()
            note("already stopping; please wait")

    numbers = (*_ALWAYS, *(each for each in _UNLESS_IGNORED if signal.getsignal(each) is not signal.SIG_IGN))
    for number in numbers:
        loop.add_signal_handler(number, hear, number)
    try:
        yield impatient
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


@asynccontextmanager
async def meanwhile(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Have something done until the context ends."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


def process_name() -> str:
    """How those name this process who hear that it carries something."""
    return f"{socket.gethostname()} (process {os.getpid()})"


def user_name() -> str:
    """Who runs this process; a number where a container gives it no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def host_and_port(address: str) -> tuple[str, int]:
    """`0.0.0.0:9464` or `[::1]:9464` in its parts; port 0 is a free one.

    Raises:
        UsageError: when it is none.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"{address} is no address to listen at", hint="such as 127.0.0.1:9464")
    return host.removeprefix("[").removesuffix("]"), int(port)
