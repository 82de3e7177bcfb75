"""Ctrl-C and SIGTERM become one cancellation of what is being done; further ones change nothing.

A delivery that is told to stop takes its regions back. A second Ctrl-C in the middle of that would leave
users on a version that nobody watches, so it only says that the first was heard.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tidegate.cli.output import note

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@asynccontextmanager
async def cancelled_by_signals(first: str = "every region goes back first") -> AsyncIterator[None]:
    """Within the context the first signal cancels the current task; `first` says what is still done then."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None, "only a task can be cancelled"
    heard: list[signal.Signals] = []

    def hear(number: signal.Signals) -> None:
        if not heard:
            task.cancel()
        note(f"stopping: {first}" if not heard else "already stopping; please wait")
        heard.append(number)

    for number in SIGNALS:
        loop.add_signal_handler(number, hear, number)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
