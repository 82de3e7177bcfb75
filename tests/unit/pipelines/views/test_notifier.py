"""Messages go next to a delivery: in their order, tried again when that may help, and never in its way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Event as Signal

import pytest
from fakes.delivery.records import START, delivered

from pipelines.ports import Listener
from pipelines.views.notifications import (
    Body,
    DeliverySubject,
    Notification,
    NotificationChannel,
    NotificationKind,
    NotTaken,
    deliver_message,
    notified,
)

SUBJECT = DeliverySubject(delivery="0f3c", model="support-llm", version="2", champion="1", regions=("eu-west-1",))
SECRET = "https://hooks.example/T0/secret"
PLACE = NotificationChannel(form="webhook", variable="HOOK", url=SECRET, about=("opened", "closed"))
NEWS = Notification(kind=NotificationKind.OPENED, at=START, subject=SUBJECT, headline="support-llm 2 is on its way")


class Receiver:
    """A `Sender` that answers as it is told; after that it takes everything."""

    def __init__(self, *answers: NotTaken) -> None:
        self.answers = list(answers)
        self.tries = 0
        self.taken: list[Mapping[str, object]] = []

    def __call__(self, url: str, body: Body) -> None:
        assert url == SECRET
        self.tries += 1
        if self.answers:
            raise self.answers.pop(0)
        self.taken.append(body)


def test_a_message_is_tried_again_while_that_may_help() -> None:
    receiver = Receiver(NotTaken("answered 503", again=True), NotTaken("no answer", again=True))
    deliver_message(PLACE, NEWS, receiver, pauses=(0, 0))
    assert (receiver.tries, len(receiver.taken)) == (3, 1)


@pytest.mark.parametrize(("again", "tries"), [(True, 3), (False, 1)])
def test_and_given_up_when_it_does_not(again: bool, tries: int) -> None:
    receiver = Receiver(*[NotTaken("answered", again=again)] * 5)
    with pytest.raises(NotTaken):
        deliver_message(PLACE, NEWS, receiver, pauses=(0, 0))
    assert receiver.tries == tries


def hear(told: Sequence[Listener]) -> None:
    for event in delivered():
        for listener in told:
            listener.on_event(event)


def test_what_is_asked_for_arrives_in_order_before_the_end() -> None:
    receiver, complaints = Receiver(), list[str]()
    with notified(SUBJECT, [PLACE], receiver, complaints.append) as told:
        hear(told)
    assert [body["kind"] for body in receiver.taken] == ["opened", "closed"]
    assert complaints == []


def test_a_message_that_is_lost_is_told_without_its_address() -> None:
    receiver, complaints = Receiver(NotTaken("answered 404", again=False)), list[str]()
    with notified(SUBJECT, [PLACE], receiver, complaints.append, pauses=()) as told:
        hear(told)
    assert [body["kind"] for body in receiver.taken] == ["closed"]
    assert complaints == ["webhook at $HOOK was not told that support-llm 2 is on its way to eu-west-1: answered 404"]


def test_one_place_that_hangs_holds_up_neither_the_delivery_nor_the_others() -> None:
    never, quick, complaints = Signal(), Receiver(), list[str]()

    def router(url: str, body: Body) -> None:
        if url == SECRET:
            quick(url, body)
        else:
            never.wait()

    hanging = NotificationChannel(
        form="slack", variable="CHAT", url="https://hangs.example", about=("opened", "closed")
    )
    with notified(SUBJECT, [hanging, PLACE], router, complaints.append, patience_seconds=0.05) as told:
        hear(told)
    never.set()
    assert complaints == ["slack at $CHAT is too slow: messages are left unsent"]
    assert [body["kind"] for body in quick.taken] == ["opened", "closed"]


def test_an_address_is_in_no_text_of_a_place() -> None:
    assert "secret" not in f"{PLACE} {PLACE!r}"
