"""Blocking calls beside the event loop, each in a thread of its own.

The loop's own pool of threads is small, and names are looked up in it: a handful of calls that hang would keep every
new connection waiting, those that take users back among them. A thread of its own holds up nobody, nor the process's
end.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
Said = TypeVar("Said")


async def beside(call: Callable[P, Said], *args: P.args, **named: P.kwargs) -> Said:
    """What the call returns or raises. Whoever is cancelled while it waits here leaves the call to itself."""
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    answer: asyncio.Future[Said] = loop.create_future()

    def settle(said: Said | None, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(said)  # type: ignore[arg-type]  # what the call returned
        else:
            answer.set_exception(error)

    def run() -> None:
        said, raised = None, None
        try:
            said = context.run(call, *args, **named)
        except BaseException as error:  # noqa: BLE001  # it is raised again where the call was made
            raised = error
        # Nobody is left to hear it when the loop has ended.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, said, raised)

    Thread(target=run, name=f"beside: {getattr(call, '__qualname__', call)}", daemon=True).start()
    return await answer
