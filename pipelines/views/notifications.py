"""Notifications: which events are worth one, what it says, and a sender for each channel that holds up nobody."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Literal

from pipelines.authority.approvals import FREEZE, answering
from pipelines.events.listeners import QueuedListener
from pipelines.events.payloads import Closing, LeftBehind, StepFailure, Waiting
from pipelines.model import Ending, Plan
from pipelines.ports import Listener
from pipelines.spec.sections import About
from pipelines.views.wording import ENDINGS
from registry.model import Event, EventKind
from tidegate.core.errors import OutsideError
from tidegate.core.model import Value

VERDICTS = frozenset({Ending.ROLLED_BACK, Ending.INCONCLUSIVE})
"""Endings that a gate or its time decides; of the others people are told when the delivery is closed."""


class DeliverySubject(Value):
    """The delivery that is spoken of."""

    delivery: str
    model: str
    version: str
    champion: str
    regions: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.model} {self.version}"


class Notification(Value):
    """One message."""

    kind: About | Literal["test"]
    at: datetime
    subject: DeliverySubject
    headline: str
    text: str = ""
    """A sentence more; empty when the headline says it all."""
    step: str | None = None
    outcome: str | None = None
    """How the delivery ended, or what a step makes of it."""
    heads: tuple[str, ...] = ()
    """Hashes of the ledger's last events by then: noted by the receiver, they prove that nothing before was changed."""


def subject_of(plan: Plan, delivery: str) -> DeliverySubject:
    """What is known once there is a plan."""
    return DeliverySubject(
        delivery=delivery,
        model=plan.version.name,
        version=plan.on_trial,
        champion=plan.in_production,
        regions=plan.regions,
    )


def notification_of(event: Event, subject: DeliverySubject) -> Notification | None:
    """What to tell of an event; None for nearly all of them."""
    kind: About
    text, outcome = "", None
    match event.kind:
        case EventKind.STARTED if event.step == "delivery":
            kind, headline = "opened", f"{subject} is on its way to {', '.join(subject.regions)}"
            text = f"The champion is version {subject.champion}."
        case EventKind.FAILED if (ending := StepFailure.of(event).ending) in VERDICTS:
            kind, headline = "stopped", f"{subject} is stopped in {event.step}"
            text, outcome = event.message, str(ending)
        case EventKind.WAITING if (waiting := Waiting.of(event)).approval or waiting.frozen_until:
            by = f" by {waiting.by}" if waiting.by else ""
            command = answering(subject.delivery, waiting.approval or FREEZE, names=waiting.evidence is None)
            kind, headline = "freeze", f"{subject} waits {event.message}"
            text = f"{command}{by} lets it go on all the same"
            if waiting.approval:
                kind, headline = "approval", f"{subject} waits for an approval of {waiting.approval}{by}"
                text = f"{command}, or with `--refuse --reason TEXT`"
        case EventKind.ALLOWED:
            kind, headline = "approval", f"{subject} goes on: {event.message}"
        case EventKind.LEFT:
            regions = " and ".join(each.region for each in LeftBehind.of(event).left)
            kind, headline, text = "left", f"{subject} is still open in {regions}", event.message
        case EventKind.RETURNED:
            kind, headline = "left", f"{subject}: {event.message}"
        case EventKind.CLOSED:
            closing = Closing.of(event)
            kind, headline = "closed", f"{subject} {ENDINGS.get(closing.outcome, closing.outcome)}"
            text, outcome = closing.reason or event.message, closing.outcome
        case _:
            return None
    step = None if event.step == "delivery" else event.step
    return Notification(
        kind=kind, at=event.at, subject=subject, headline=headline, text=text, step=step, outcome=outcome
    )


LONGEST = 3000
"""Characters of a text in chat: Slack cuts a longer one at any place, and a spec's problems can be many."""

Body = Mapping[str, object]


def webhook_body(news: Notification) -> Body:
    """Everything, for programs; new keys may come, none goes."""
    said = news.model_dump(mode="json")
    return {**said.pop("subject"), **said}


def slack_body(news: Notification) -> Body:
    """As Slack's incoming webhooks take it, and Mattermost's and Rocket.Chat's."""
    text = news.text if len(news.text) <= LONGEST else f"{news.text[:LONGEST]}…"
    # What its ledger can be held to later.
    heads = f", ledger {', '.join(news.heads)}" if news.heads else ""
    lines = [f"*{_escaped(news.headline)}*", _escaped(text), f"_delivery {news.subject.delivery}{heads}_"]
    return {"text": "\n".join(line for line in lines if line)}


BODIES: Mapping[str, Callable[[Notification], Body]] = {"webhook": webhook_body, "slack": slack_body}
"""By the form's name in the spec."""


def _escaped(text: str) -> str:
    """The three characters by which Slack would make a link or a mention of what a gate or a person wrote."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


PAUSES = (1.0, 4.0)
"""Seconds before the second and the third try of a message."""

PATIENCE_SECONDS = 20.0
"""How long the end of a delivery waits for messages that are still on their way to a place."""


class NotTaken(OutsideError):
    """A message did not arrive. Its text names no address."""

    def __init__(self, message: str, *, again: bool) -> None:
        """`again`: whether another try may help."""
        super().__init__(message)
        self.again = again


Sender = Callable[[str, Body], None]
"""Brings a body to an address; raises NotTaken when the receiver did not take it."""


@dataclass(frozen=True)
class NotificationChannel:
    """Who is told, and of what."""

    form: str
    variable: str
    """The environment variable that the address came from: what people may read of it."""
    url: str = field(repr=False)
    about: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.form} at ${self.variable}"


@contextmanager
def notified(
    subject: DeliverySubject,
    places: Sequence[NotificationChannel],
    sender: Sender,
    complain: Callable[[str], None],
    *,
    heads: Callable[[], tuple[str, ...]] = tuple,
    pauses: Sequence[float] = PAUSES,
    patience_seconds: float = PATIENCE_SECONDS,
) -> Iterator[Sequence[Listener]]:
    """Listeners to a delivery's journal, one a place; what they have taken is sent until the context ends.

    `complain` gets a line for each message that did not arrive; `heads` are the ledger's, as it is known.
    """

    def tell(place: NotificationChannel, event: Event) -> None:
        news = notification_of(event, subject)
        if news is None or news.kind not in place.about:
            return
        try:
            deliver_message(place, news.model_copy(update={"heads": heads()}), sender, pauses)
        except NotTaken as error:
            complain(f"{place} was not told that {news.headline}: {error}")

    with ExitStack() as stack:
        listeners = []
        for place in places:
            late = partial(complain, f"{place} is too slow: messages are left unsent")
            told = QueuedListener([partial(tell, place)], patience_seconds=patience_seconds, late=late)
            listeners.append(stack.enter_context(told))
        yield listeners


def deliver_message(
    place: NotificationChannel, news: Notification, sender: Sender, pauses: Sequence[float] = PAUSES
) -> None:
    """Send one message, in a few tries.

    Raises:
        NotTaken: none of them arrived.
    """
    body = BODIES[place.form](news)
    for pause in (*pauses, None):
        try:
            sender(place.url, body)
        except NotTaken as error:
            if pause is None or not error.again:
                raise
            time.sleep(pause)
        else:
            return
