"""What everybody who watches sees: one look at the ledger serves them all, and nobody looks when nobody watches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime

from pipelines.page.model import Look, Picture, View
from pipelines.page.render import draw
from tidegate.core.beside import beside
from tidegate.core.clock import Clock
from tidegate.core.errors import TidegateError

EVERY_SECONDS = 2.0
"""Between two looks; a gate is asked as often."""


class Board:
    """Holds the picture of the last look."""

    def __init__(self, model: str, look: Callable[[], Look], clock: Clock) -> None:
        """`look` may block and is called in a thread, never twice at once."""
        self.model = model
        self._look, self._clock = look, clock
        self._last: Look | None = None
        self._silent_since: datetime | None = None
        self._looked_at = float("-inf")
        self._looking: asyncio.Task[None] | None = None
        self.picture: Picture = draw(View(model=model, now=clock.now()))
        """The page as it stood at the last look."""

    def is_over(self, delivery: str) -> bool:
        """Whether the last look saw the delivery, and its end."""
        seen = self._last.deliveries if self._last else ()
        return any(each.summary.id == delivery and each.over for each in seen)

    async def refresh(self) -> None:
        """Return once the picture is not older than `EVERY_SECONDS`; whoever gives up waiting stops no look."""
        if self._looking is None:
            if self._clock.monotonic() - self._looked_at < EVERY_SECONDS:
                return
            self._looking = asyncio.create_task(self._once())
        await asyncio.shield(self._looking)

    async def _once(self) -> None:
        try:
            await beside(self._draw)
        finally:
            self._looked_at = self._clock.monotonic()
            self._looking = None

    def _draw(self) -> None:
        try:
            self._last, self._silent_since = self._look(), None
        except TidegateError:
            # Not what it says: it names the address of the store, which may carry a password.
            self._silent_since = self._silent_since or self._clock.now()
        known = View(model=self.model, now=self._clock.now(), look=self._last, silent_since=self._silent_since)
        self.picture = draw(known)
