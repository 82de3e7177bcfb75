"""What becomes of one webhook request: believed or refused, for us or not, written down before it is answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus

from pipelines.serving.inbox import Inbox, Taken
from registry.triggers.payload import Heard, Malformed, read
from registry.triggers.signature import Message, distrust
from tidegate.core.clock import Clock
from tidegate.core.errors import OutsideError

MOST_BYTES = 64 * 1024
"""Of a body. MLflow's own are below 6 KB: a tag's value has at most 5000 characters."""


class Outcome(StrEnum):
    """How a message is answered; the first six are refusals. A `Distrust` and a `Taken` are called the same here."""

    UNSIGNED = "unsigned"
    FORGED = "forged"
    STALE = "stale"
    REPLAYED = "replayed"
    MALFORMED = "malformed"
    OVERSIZE = "oversize"
    UNAVAILABLE = "unavailable"
    """The disk did not take it; MLflow tries again."""
    UNKNOWN_MODEL = "unknown-model"
    """Authentic, but of a model that is not delivered here: MLflow sends every model's events to every webhook."""
    IGNORED = "ignored"
    """Authentic, but no mark that starts a delivery."""
    NOTED = "noted"
    """A mark was taken away: the registry is looked at."""
    DUPLICATE = "duplicate"
    QUEUED = "queued"


STATUS = {
    Outcome.UNSIGNED: HTTPStatus.UNAUTHORIZED,
    Outcome.FORGED: HTTPStatus.UNAUTHORIZED,
    Outcome.STALE: HTTPStatus.UNAUTHORIZED,
    Outcome.REPLAYED: HTTPStatus.CONFLICT,
    Outcome.MALFORMED: HTTPStatus.BAD_REQUEST,
    Outcome.OVERSIZE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    Outcome.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    Outcome.UNKNOWN_MODEL: HTTPStatus.OK,
    Outcome.IGNORED: HTTPStatus.OK,
    Outcome.NOTED: HTTPStatus.OK,
    Outcome.DUPLICATE: HTTPStatus.OK,
    Outcome.QUEUED: HTTPStatus.ACCEPTED,
}
"""MLflow tries 429, 500, 502, 503 and 504 again, and nothing else."""


@dataclass
class Receiver:
    """Judges messages for one model and alias."""

    model: str
    alias: str
    secrets: tuple[str, ...] = field(repr=False)
    """With any of which a message may be signed."""
    inbox: Inbox
    clock: Clock
    wake: Callable[[], None]
    """Has the registry looked at; called once the inbox has what the message says, from any thread."""
    heard: Counter[Outcome] = field(default_factory=Counter)
    """How many messages ended how."""

    def take(self, message: Message) -> Outcome:
        """What becomes of the message; blocks while the disk writes."""
        return self.count(self._judged(message))

    def count(self, outcome: Outcome) -> Outcome:
        """Note an answer, also one that was clear before the message was whole."""
        self.heard[outcome] += 1
        return outcome

    def _judged(self, message: Message) -> Outcome:
        now = self.clock.now()
        why = distrust(message, self.secrets, now)
        if why is not None:
            return Outcome(why)
        try:
            heard = read(message.body)
        except Malformed:
            return Outcome.MALFORMED
        wish = heard.wish if self._is_ours(heard) else None
        try:
            taken = self.inbox.hear(message.id, wish, now)
        except OutsideError:
            return Outcome.UNAVAILABLE
        if taken is Taken.NOTED and not self._concerns(heard):
            return Outcome.UNKNOWN_MODEL if heard.model not in (None, self.model) else Outcome.IGNORED
        if taken in (Taken.QUEUED, Taken.NOTED):
            self.wake()
        return Outcome(taken)

    def _is_ours(self, heard: Heard) -> bool:
        return heard.wish is not None and (heard.wish.model, heard.wish.alias) == (self.model, self.alias)

    def _concerns(self, heard: Heard) -> bool:
        """Whether a mark was taken from a version of our model."""
        return heard.model == self.model and heard.wish is None
