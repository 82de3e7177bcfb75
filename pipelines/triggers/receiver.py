"""Receives webhooks: believed or refused, for us or not, written down before they are answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus

from pipelines.triggers.queue import AcceptResult, RequestQueue
from pipelines.triggers.webhooks import (
    Malformed,
    Message,
    WebhookEvent,
    read,
    reject_reason,
)
from tidegate.core.clock import Clock
from tidegate.core.errors import OutsideError

MOST_BYTES = 64 * 1024
"""Of a body. MLflow's own are below 6 KB: a tag's value has at most 5000 characters."""


class WebhookStatus(StrEnum):
    """How a webhook request is answered; the first six are refusals.

    Values of `RejectReason` and of `AcceptResult` have the same names here.
    """

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
    WebhookStatus.UNSIGNED: HTTPStatus.UNAUTHORIZED,
    WebhookStatus.FORGED: HTTPStatus.UNAUTHORIZED,
    WebhookStatus.STALE: HTTPStatus.UNAUTHORIZED,
    WebhookStatus.REPLAYED: HTTPStatus.CONFLICT,
    WebhookStatus.MALFORMED: HTTPStatus.BAD_REQUEST,
    WebhookStatus.OVERSIZE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    WebhookStatus.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    WebhookStatus.UNKNOWN_MODEL: HTTPStatus.OK,
    WebhookStatus.IGNORED: HTTPStatus.OK,
    WebhookStatus.NOTED: HTTPStatus.OK,
    WebhookStatus.DUPLICATE: HTTPStatus.OK,
    WebhookStatus.QUEUED: HTTPStatus.ACCEPTED,
}
"""MLflow tries 429, 500, 502, 503 and 504 again, and nothing else."""


@dataclass
class Receiver:
    """Judges messages for one model and alias."""

    model: str
    alias: str
    secrets: tuple[str, ...] = field(repr=False)
    """With any of which a message may be signed."""
    inbox: RequestQueue
    clock: Clock
    wake: Callable[[], None]
    """Has the registry looked at; called once the inbox has what the message says, from any thread."""
    heard: Counter[WebhookStatus] = field(default_factory=Counter)
    """How many messages ended how."""

    def take(self, message: Message) -> WebhookStatus:
        """What becomes of the message; blocks while the disk writes."""
        return self.count(self._judged(message))

    def count(self, outcome: WebhookStatus) -> WebhookStatus:
        """Note an answer, also one that was clear before the message was whole."""
        self.heard[outcome] += 1
        return outcome

    def _judged(self, message: Message) -> WebhookStatus:
        now = self.clock.now()
        why = reject_reason(message, self.secrets, now)
        if why is not None:
            return WebhookStatus(why)
        try:
            heard = read(message.body)
        except Malformed:
            return WebhookStatus.MALFORMED
        request = heard.request if self._is_ours(heard) else None
        try:
            taken = self.inbox.hear(message.id, request, now)
        except OutsideError:
            return WebhookStatus.UNAVAILABLE
        if taken is AcceptResult.NOTED and not self._concerns(heard):
            return WebhookStatus.UNKNOWN_MODEL if heard.model not in (None, self.model) else WebhookStatus.IGNORED
        if taken in (AcceptResult.QUEUED, AcceptResult.NOTED):
            self.wake()
        return WebhookStatus(taken)

    def _is_ours(self, heard: WebhookEvent) -> bool:
        return heard.request is not None and (heard.request.model, heard.request.alias) == (self.model, self.alias)

    def _concerns(self, heard: WebhookEvent) -> bool:
        """Whether a mark was taken from a version of our model."""
        return heard.model == self.model and heard.request is None
