"""A blocking call with a time limit, in a thread that nobody waits for once the limit is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import TypeVar

from tidegate.core.errors import OutsideError

Said = TypeVar("Said")


async def within(seconds: float, call: Callable[[], Said], *, what: str) -> Said:
    """What the call returns or raises.

    Not in the loop's own pool: at its end the loop would wait for a call that hangs.

    Raises:
        OutsideError: `what` did not answer in time.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Said] = loop.create_future()

    def settle(do: Callable[[], None]) -> None:
        if not answer.done():
            do()

    def run() -> None:
        with suppress(RuntimeError):  # the loop has ended meanwhile
            try:
                said = call()
            except Exception as error:  # noqa: BLE001  # raised again where the call was made
                raised = error
                loop.call_soon_threadsafe(settle, lambda: answer.set_exception(raised))
            else:
                loop.call_soon_threadsafe(settle, lambda: answer.set_result(said))

    Thread(target=run, name=what, daemon=True).start()
    try:
        return await asyncio.wait_for(answer, seconds)
    except TimeoutError:
        raise OutsideError(f"{what} did not answer in {seconds:g} s") from None
