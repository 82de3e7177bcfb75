"""Receives webhooks: believed or refused, for us or not, written down before they are answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from pipelines.triggers.queue import RequestQueue
from pipelines.triggers.webhooks import Malformed, Message, WebhookStatus, read, reject_reason
from tidegate.core.clock import Clock
from tidegate.core.errors import OutsideError

MOST_BYTES = 64 * 1024
"""Of a body. MLflow's own are below 6 KB: a tag's value has at most 5000 characters."""


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
        if (why := reject_reason(message, self.secrets, now)) is not None:
            return why
        try:
            model, request = read(message.body)
        except Malformed:
            return WebhookStatus.MALFORMED
        if request is not None and (request.model, request.alias) != (self.model, self.alias):
            wanted, concerns = None, False
        else:
            # Without a request a mark was taken away from a version, perhaps of ours.
            wanted, concerns = request, model == self.model
        try:
            taken = self.inbox.hear(message.id, wanted, now)
        except OutsideError:
            return WebhookStatus.UNAVAILABLE
        if taken is WebhookStatus.NOTED and not concerns:
            return WebhookStatus.UNKNOWN_MODEL if model not in (None, self.model) else WebhookStatus.IGNORED
        if taken in (WebhookStatus.QUEUED, WebhookStatus.NOTED):
            self.wake()
        return taken
