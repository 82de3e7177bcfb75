"""Blocking calls off the event loop, each in a thread of its own.

The loop's own pool of threads is small, and names are resolved in it: a handful of calls that hang would keep every
new connection waiting, those of a rollback among them. A thread of its own holds up neither others nor the process's
end.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from threading import Thread
from typing import ParamSpec, TypeVar

from tidegate.core.errors import OutsideError

P = ParamSpec("P")
Result = TypeVar("Result")


async def call_in_thread(call: Callable[P, Result], *args: P.args, **named: P.kwargs) -> Result:
    """What the call returns or raises. A caller that is cancelled leaves the call running and drops its result."""
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    answer: asyncio.Future[Result] = loop.create_future()

    def settle(result: Result | None, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(result)  # type: ignore[arg-type]  # what the call returned
        else:
            answer.set_exception(error)

    def run() -> None:
        result, raised = None, None
        try:
            result = context.run(call, *args, **named)
        except BaseException as error:  # noqa: BLE001  # it is raised again where the call was made
            raised = error
        # Nobody is left to hear it when the loop has ended.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result, raised)

    Thread(target=run, name=f"call: {getattr(call, '__qualname__', call)}", daemon=True).start()
    return await answer


def call_within(seconds: float, call: Callable[[], Result]) -> Result:
    """What the call returns or raises, for callers without an event loop; one that hangs is left behind.

    Raises:
        TimeoutError: it did not end in time.
    """
    answer: Future[Result] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            answer.set_result(context.run(call))
        except BaseException as error:  # noqa: BLE001  # it is raised again where the call was made
            answer.set_exception(error)

    Thread(target=run, name=f"call: {getattr(call, '__qualname__', call)}", daemon=True).start()
    return answer.result(seconds)


async def call_with_timeout(seconds: float, call: Callable[[], Result], *, what: str) -> Result:
    """What the call returns or raises; the thread of one that hangs is left behind.

    Raises:
        OutsideError: `what` did not answer in time.
    """
    try:
        return await asyncio.wait_for(call_in_thread(call), seconds)
    except TimeoutError:
        raise OutsideError(
            f"{what} did not answer in {seconds:g} s", hint="check that it runs and can be reached, and retry"
        ) from None
