"""Notifications: which events are worth one, what it says, and a sender for each channel that holds up nobody."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Protocol, Self

from pipelines.authority.approvals import FREEZE, answering
from pipelines.events.payloads import (
    AnswersAllow,
    Closing,
    LeftBehind,
    Opening,
    Returned,
    StepFailure,
    Waiting,
    payload_of,
)
from pipelines.model import Ending, Plan
from pipelines.views.wording import ENDINGS
from registry.model import Event
from tidegate.core.errors import OutsideError
from tidegate.core.model import Value


class NotificationKind(StrEnum):
    """What a message is about."""

    OPENED = "opened"
    """A delivery begins."""
    STOPPED = "stopped"
    """A step's gates said no, or time was over without a verdict; regions go back now."""
    APPROVAL = "approval"
    """A step waits for people, or goes on because they have said yes."""
    FREEZE = "freeze"
    """A step waits until nothing forbids it to change a region."""
    LEFT = "left"
    """A region could not be taken back, and what closes it; or it is back after all."""
    CLOSED = "closed"
    """The delivery is over, whichever way."""
    TEST = "test"
    """`tidegate doctor --send-test` tries the address."""


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

    kind: NotificationKind
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
    found: _Wording | None = None
    match payload_of(event):
        case Opening():
            headline = f"{subject} is on its way to {', '.join(subject.regions)}"
            text = f"The champion is version {subject.champion}."
            found = _Wording(NotificationKind.OPENED, headline, text)
        case StepFailure(ending=Ending() as ending) if ending in VERDICTS:
            found = _Wording(
                NotificationKind.STOPPED, f"{subject} is stopped in {event.step}", event.message, str(ending)
            )
        case Waiting() as waiting:
            found = _held(event, waiting, subject)
        case AnswersAllow():
            found = _Wording(NotificationKind.APPROVAL, f"{subject} goes on: {event.message}")
        case LeftBehind() as behind:
            regions = " and ".join(each.region for each in behind.left)
            found = _Wording(NotificationKind.LEFT, f"{subject} is still open in {regions}", event.message)
        case Returned():
            found = _Wording(NotificationKind.LEFT, f"{subject}: {event.message}")
        case Closing() as closing:
            headline = f"{subject} {ENDINGS.get(closing.outcome, closing.outcome)}"
            found = _Wording(NotificationKind.CLOSED, headline, closing.reason or event.message, closing.outcome)
    if found is None:
        return None
    step = None if event.step == "delivery" else event.step
    return Notification(at=event.at, subject=subject, step=step, **asdict(found))


@dataclass(frozen=True)
class _Wording:
    kind: NotificationKind
    headline: str
    text: str = ""
    outcome: str | None = None


def _held(event: Event, waiting: Waiting, subject: DeliverySubject) -> _Wording | None:
    names = waiting.evidence is None
    by = f" by {waiting.by}" if waiting.by else ""
    if waiting.approval is not None:
        headline = f"{subject} waits for an approval of {waiting.approval}{by}"
        text = f"{answering(subject.delivery, waiting.approval, names=names)}, or with `--refuse --reason TEXT`"
        return _Wording(NotificationKind.APPROVAL, headline, text)
    if waiting.frozen_until is not None:
        text = f"{answering(subject.delivery, FREEZE, names=names)}{by} lets it go on all the same"
        return _Wording(NotificationKind.FREEZE, f"{subject} waits {event.message}", text)
    return None


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
    lines = [f"*{_escaped(news.headline)}*", _escaped(text), f"_{_record(news)}_"]
    return {"text": "\n".join(line for line in lines if line)}


def _record(news: Notification) -> str:
    """The delivery, and what its ledger can be held to later."""
    heads = f", ledger {', '.join(news.heads)}" if news.heads else ""
    return f"delivery {news.subject.delivery}{heads}"


BODIES: Mapping[str, Callable[[Notification], Body]] = {"webhook": webhook_body, "slack": slack_body}
"""By the form's name in the spec."""


def _escaped(text: str) -> str:
    """The three characters by which Slack would make a link or a mention of what a gate or a person wrote."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


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
class NotificationChannel:
    """Who is told, and of what."""

    form: str
    variable: str
    """The environment variable that the address came from: what people may read of it."""
    url: str = field(repr=False)
    about: Collection[str]

    def __str__(self) -> str:
        return f"{self.form} at ${self.variable}"


class Notifier:
    """A listener to a delivery's journal; what it has taken is sent until its context ends."""

    def __init__(
        self,
        subject: DeliverySubject,
        places: Sequence[NotificationChannel],
        sender: Sender,
        complain: Callable[[str], None],
        *,
        heads: Callable[[], tuple[str, ...]] = tuple,
        pauses: Sequence[float] = PAUSES,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """`complain` gets a line for each message that did not arrive; `heads` are the ledger's, as it is known."""
        self._subject, self._heads = subject, heads
        self._patience = patience_seconds
        self._queues = [_Queue(place, sender, complain, pauses) for place in places]

    def on_event(self, event: Event) -> None:
        """Take it to be sent when it is news; returns at once."""
        news = notification_of(event, self._subject)
        for queue in self._queues if news else ():
            if news and news.kind in queue.place.about:
                queue.put(news.model_copy(update={"heads": self._heads()}))

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

    def __init__(
        self, place: NotificationChannel, sender: Sender, complain: Callable[[str], None], pauses: Sequence[float]
    ) -> None:
        self.place = place
        self._sender = sender
        self._complain = complain
        self._pauses = pauses
        self._waiting: SimpleQueue[Notification | None] = SimpleQueue()
        # A daemon: a receiver that never answers must not keep a delivery's process alive.
        self._thread = Thread(target=self._run, name=f"notify {place}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, news: Notification) -> None:
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
            sender.send(place.url, body)
        except NotTaken as error:
            if pause is None or not error.again:
                raise
            time.sleep(pause)
        else:
            return
