"""Sends messages beside the delivery, a thread for each place: one that is slow or away holds up nobody."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Protocol, Self

from pipelines.notify.messages import BODIES, Body
from pipelines.notify.news import News, Subject, news_of
from pipelines.ports import Event
from tidegate.core.errors import OutsideError

PAUSES = (1.0, 4.0)
"""Seconds before the second and the third try of a message."""

PATIENCE_SECONDS = 20.0
"""How long the end of a delivery waits for messages that are still on their way."""


class NotTaken(OutsideError):
    """A message did not arrive. Its text names no address."""

    def __init__(self, message: str, *, again: bool) -> None:
        """`again`: whether another try may help."""
        super().__init__(message)
        self.again = again


class Sender(Protocol):
    """Brings bodies to addresses."""

    def send(self, url: str, body: Body) -> None:
        """Raises NotTaken when the receiver did not take it."""
        ...


@dataclass(frozen=True)
class Place:
    """Who is told, and of what."""

    form: str
    variable: str
    """The environment variable that the address came from: what people may read of it."""
    url: str = field(repr=False)
    about: Collection[str]

    def __str__(self) -> str:
        return f"{self.form} at ${self.variable}"


class Outbox:
    """A listener to a delivery's journal; what it has taken is sent until its context ends."""

    def __init__(
        self,
        subject: Subject,
        places: Sequence[Place],
        sender: Sender,
        complain: Callable[[str], None],
        *,
        pauses: Sequence[float] = PAUSES,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """`complain` gets a line for each message that did not arrive."""
        self._subject = subject
        self._patience = patience_seconds
        self._queues = [_Queue(place, sender, complain, pauses) for place in places]

    def on_event(self, event: Event) -> None:
        """Take it to be sent when it is news; returns at once."""
        news = news_of(event, self._subject)
        for queue in self._queues if news else ():
            if news and news.kind in queue.place.about:
                queue.put(news)

    def __enter__(self) -> Self:
        for queue in self._queues:
            queue.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        until = time.monotonic() + self._patience
        for queue in self._queues:
            queue.end()
        for queue in self._queues:
            queue.wait(max(0.0, until - time.monotonic()))


class _Queue:
    """What is to be sent to one place, in its order."""

    def __init__(self, place: Place, sender: Sender, complain: Callable[[str], None], pauses: Sequence[float]) -> None:
        self.place = place
        self._sender = sender
        self._complain = complain
        self._pauses = pauses
        self._waiting: SimpleQueue[News | None] = SimpleQueue()
        # A daemon: a receiver that never answers must not keep a delivery's process alive.
        self._thread = Thread(target=self._run, name=f"notify {place}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, news: News) -> None:
        self._waiting.put(news)

    def end(self) -> None:
        self._waiting.put(None)

    def wait(self, seconds: float) -> None:
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._complain(f"{self.place} is too slow: messages are left unsent")

    def _run(self) -> None:
        while (news := self._waiting.get()) is not None:
            try:
                deliver_message(self.place, news, self._sender, self._pauses)
            except NotTaken as error:
                self._complain(f"{self.place} was not told that {news.headline}: {error}")


def deliver_message(place: Place, news: News, sender: Sender, pauses: Sequence[float] = PAUSES) -> None:
    """Send one message, in a few tries.

    Raises:
        NotTaken: none of them arrived.
    """
    body = BODIES[place.form](news)
    for pause in (*pauses, None):
        try:
            sender.send(place.url, body)
        except NotTaken as error:
            if pause is None or not error.again:
                raise
            time.sleep(pause)
        else:
            return
