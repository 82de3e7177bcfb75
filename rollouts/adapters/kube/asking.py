"""How one thing is asked: as somebody whom the server knows, and again as long as that is safe."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

from rollouts.adapters.kube.access import Access
from rollouts.adapters.kube.transport import Answer, Call, Wire
from rollouts.errors import FleetError
from rollouts.kube.retrying import Backoff, asked_pause, may_repeat
from rollouts.kube.status import refusal
from tidegate.core.clock import Clock


class Asking:
    """Sends calls; its answers are successes, everything else is raised.

    `said` is a call in few words, for errors.
    """

    def __init__(
        self,
        access: Access,
        wire: Wire,
        *,
        clock: Clock,
        chance: Callable[[], float],
        backoff: Backoff,
        patience_seconds: float,
    ) -> None:
        self._access = access
        self._wire = wire
        self._clock = clock
        self._chance = chance
        self._backoff = backoff
        self._patience_seconds = patience_seconds
        self.ahead: timedelta | None = None
        """How far the server's clock was ahead of ours at its last answer, by its Date header; within a second."""

    async def insist(self, call: Call, said: str, *, changes_nothing: bool) -> Answer:
        """Send it, and again as long as that is safe and patience lasts."""
        begun, failures = self._clock.monotonic(), 0
        while True:
            try:
                return await self._once(call, said)
            except FleetError as error:
                failures += 1
                pause = max(self._backoff.pause(failures, self._chance()), asked_pause(error))
                late = self._clock.monotonic() + pause - begun > self._patience_seconds
                if late or not may_repeat(error, changes_nothing=changes_nothing):
                    raise
            await self._clock.sleep(pause)

    @asynccontextmanager
    async def listen(self, call: Call, said: str, *, silence_seconds: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of an answer without end; not asked for again, since who listens knows best from where."""
        credential = await self._access.credential()
        renewed = False
        while True:
            async with self._wire.listen(call, credential, silence_seconds=silence_seconds) as heard:
                if not isinstance(heard, Answer):
                    yield heard
                    return
            if renewed or heard.status != 401:
                raise refusal(said, heard.status, heard.body, heard.retry_after)
            credential, renewed = await self._access.renewed(credential), True

    async def close(self) -> None:
        """Close every connection."""
        await self._wire.close()

    async def _once(self, call: Call, said: str) -> Answer:
        """Send it; once more, with a fresh credential, when the server does not know us: then nothing was done."""
        credential = await self._access.credential()
        answer = await self._wire.ask(call, credential)
        if answer.status == 401:
            answer = await self._wire.ask(call, await self._access.renewed(credential))
        if answer.date:
            self.ahead = answer.date - self._clock.now()
        if answer.status >= 400:
            raise refusal(said, answer.status, answer.body, answer.retry_after)
        return answer
