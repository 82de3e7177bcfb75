"""Listeners of a journal: a file of all events, and displays that must not hold up the delivery."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Self

from pipelines.events.state import DeliveryState
from registry.model import Event


class DeliveryDisplay:
    """Follows one delivery, event by event, and shows it while it is entered; this one only passes events on."""

    def __init__(self, listeners: Sequence[Callable[[Event], object]] = ()) -> None:
        """`listeners` hear each event once `story` has taken it in."""
        self.story = DeliveryState()
        self._listeners = tuple(listeners)

    def on_event(self, event: Event) -> None:
        """Take the event in."""
        self.story = self.story.apply(event)
        for listener in self._listeners:
            listener(event)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


class EventFile:
    """A listener that appends JSON lines."""

    def __init__(self, path: Path) -> None:
        """The folder of `path` is made when it is not there."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path

    def on_event(self, event: Event) -> None:
        """Append one line, and hand it to the system at once."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(event.model_dump_json() + "\n")

    def read(self) -> Iterable[Event]:
        """All events so far; a last line that a crash cut short is left out."""
        if not self.path.exists():
            return
        # As bytes: text would also be split at characters that only look like the end of a line, and a
        # crash may have cut a character in half.
        for line in self.path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                yield Event.model_validate_json(line)


log = logging.getLogger(__name__)

PATIENCE_SECONDS = 5.0
"""How long the end waits for listeners that are behind."""


class QueuedListener:
    """A listener that tells others in a thread of its own, in their order, until its context ends."""

    def __init__(
        self,
        listeners: Sequence[Callable[[Event], object]],
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        late: Callable[[], None] = lambda: None,
    ) -> None:
        """None of `listeners` may be told by anybody else; `late` is called when they are not done in time."""
        self._listeners, self._late = tuple(listeners), late
        self._patience = patience_seconds
        self._events: SimpleQueue[Event | None] = SimpleQueue()
        # A daemon: one that never ends must not keep a delivery's process alive.
        self._thread = Thread(target=self._run, name="displays", daemon=True)

    def on_event(self, event: Event) -> None:
        """Take it, and return at once."""
        self._events.put(event)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._events.put(None)
        self._thread.join(self._patience)
        if self._thread.is_alive():
            self._late()

    def _run(self) -> None:
        while (event := self._events.get()) is not None:
            for listener in self._listeners:
                try:
                    listener(event)
                # Whatever it is: the others are still to be told, and the delivery has other things to do.
                except Exception:
                    log.exception("a display could not take %s %s", event.step, event.kind)
