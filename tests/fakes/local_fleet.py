"""What tests of a local fleet start it with, and how they reach into it."""

from __future__ import annotations

import asyncio
import fcntl
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from rollouts.model import PORT, Arm, Engine

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


def process_of(arm: Arm | None) -> psutil.Process:
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
