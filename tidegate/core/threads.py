"""Blocking calls off the event loop, each in a thread of its own.

The loop's own pool of threads is small, and names are resolved in it: a handful of calls that hang would keep every
new connection waiting, those of a rollback among them. A thread of its own holds up neither others nor the process's
end.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from threading import Thread
from typing import ParamSpec, TypeVar

NOTICED_SECONDS = 1.0
"""Within which a signal is."""

P = ParamSpec("P")
Result = TypeVar("Result")


async def call_in_thread(call: Callable[P, Result], *args: P.args, **named: P.kwargs) -> Result:
    """What the call returns or raises. A caller that is cancelled leaves the call running and drops its result."""
    return await asyncio.wrap_future(_started(partial(call, *args, **named)))


def call_within(seconds: float | None, call: Callable[[], Result]) -> Result:
    """What the call returns or raises, for callers without an event loop; one that hangs is left behind.

    Raises:
        TimeoutError: it did not end in time.
    """
    answer, until = _started(call), time.monotonic() + (math.inf if seconds is None else seconds)
    while not answer.done() and (left := until - time.monotonic()) > 0:
        # In parts: Ctrl-C that comes while a wait is about to begin is noticed when that wait ends.
        wait([answer], min(left, NOTICED_SECONDS))
    return answer.result(0)


def _started(call: Callable[[], Result]) -> Future[Result]:
    answer: Future[Result] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        # A call that runs cannot be cancelled.
        answer.set_running_or_notify_cancel()
        try:
            answer.set_result(context.run(call))
        except BaseException as error:  # noqa: BLE001  # it is raised again where the call was made
            answer.set_exception(error)

    Thread(target=run, name=f"call: {call}", daemon=True).start()
    return answer
