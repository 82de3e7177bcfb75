"""Displays and files beside the delivery: a terminal that takes nothing more holds up nobody."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pipelines.ports import Event

if TYPE_CHECKING:
    from pipelines.journal import Listener

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 5.0
"""How long the end waits for listeners that are behind."""


class Apart:
    """A listener that tells others in a thread of its own, in their order, until its context ends."""

    def __init__(self, listeners: Sequence[Listener], *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        """None of `listeners` may be told by anybody else."""
        self._listeners = tuple(listeners)
        self._patience = patience_seconds
        self._events: SimpleQueue[Event | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="displays", daemon=True)

    def on_event(self, event: Event) -> None:
        """Take it, and return at once."""
        self._events.put(event)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._events.put(None)
        self._thread.join(self._patience)

    def _run(self) -> None:
        while (event := self._events.get()) is not None:
            for listener in self._listeners:
                try:
                    listener.on_event(event)
                # Whatever it is: the others are still to be told, and the delivery has other things to do.
                except Exception:
                    log.exception("a display could not take %s %s", event.step, event.kind)
