"""What people are told of a delivery, each in a sentence: next to it, in order, tried again, and never in its way."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event as Signal

import httpx
import pytest
from fakes.delivery.records import START, delivered
from fakes.delivery.world import CHALLENGER_URL, World, a_spec
from fakes.golden import is_golden

from pipelines.adapters.services import send_by_http
from pipelines.ports import Listener
from pipelines.views.notifications import (
    LONGEST,
    Body,
    DeliverySubject,
    Notification,
    NotificationChannel,
    NotTaken,
    deliver_message,
    notification_of,
    notified,
    slack_body,
    subject_of,
    webhook_body,
)
from registry.model import Event

GOLDEN = Path(__file__).parents[3] / "golden/notifications"
SUBJECT = DeliverySubject(delivery="0f3c", model="support-llm", version="2", champion="1", regions=("eu-west-1",))
SECRET = "https://hooks.example/T0/secret"
PLACE = NotificationChannel(form="webhook", variable="HOOK", url=SECRET, about=("opened", "closed"))
NEWS = Notification(kind="opened", at=START, subject=SUBJECT, headline="support-llm 2 is on its way")


TRAFFIC = "traffic: {requests_per_second: 200}"
YEAR = "from: 2026-01-01, to: 2026-01-01 02:00, timezone: Europe/Berlin, reason: new year"
ASKED = "approvals: [{before: finalize, within: 30s, by: names}]"
WORLDS: Mapping[str, tuple[str, bool]] = {
    "healthy": ("", True),
    "wrong answers": ("", False),
    "an approval": (ASKED, True),
    "a freeze": (f"freeze: [{{{YEAR}, lift: names}}]", True),
}


@pytest.mark.parametrize("case", WORLDS)
async def test_people_are_told_in_these_words(tmp_path: Path, case: str) -> None:
    said, good = WORLDS[case]
    world = World(tmp_path, a_spec(traffic=f"{said}\n{TRAFFIC}"))
    if not good:
        world.chat.scripts[CHALLENGER_URL] = lambda prompt: "fast and wrong"
    subject = subject_of(world.plan, world.ledger.delivery)
    await world.deliver()
    news = [each for event in world.recorder.events if (each := notification_of(event, subject))]
    told = [each.model_dump_json(include={"kind", "step", "outcome", "headline", "text"}) for each in news]
    is_golden("\n".join([*told, ""]), GOLDEN / f"{case.replace(' ', '_')}.jsonl")


@pytest.mark.parametrize(
    "event",
    [
        Event(at=START, step="undo@eu-west-1", kind="failed", message="not there", data={}),
        Event(at=START, step="build", kind="failed", message="no registry", data={"ending": "failed"}),
        Event(
            at=START, step="deploy@eu-west-1", kind="waiting", message="for what a newer tidegate waits for", data={}
        ),
        Event(at=START, step="build", kind="started", message=""),
        Event(at=START, step="delivery", kind="evidence", message="carried on"),
    ],
)
def test_everything_else_is_for_the_report(event: Event) -> None:
    assert notification_of(event, SUBJECT) is None


def test_what_a_gate_quotes_is_no_link_and_no_mention_in_chat() -> None:
    news = Notification(
        kind="closed",
        at=START,
        subject=SUBJECT,
        headline="a & b",
        text="<!channel> " + "x" * 2 * LONGEST,
    )
    text = str(slack_body(news)["text"])
    assert text.startswith("*a &amp; b*\n&lt;!channel&gt; xxx")
    assert text.endswith("x…\n_delivery 0f3c_")
    assert len(text) < LONGEST + 100


def test_a_chat_is_told_what_the_ledger_can_be_held_to() -> None:
    news = Notification(kind="closed", at=START, subject=SUBJECT, headline="over", heads=("9f86d0", "60303a"))
    assert slack_body(news)["text"] == "*over*\n_delivery 0f3c, ledger 9f86d0, 60303a_"


def test_a_program_gets_everything_flat() -> None:
    opened = Notification(kind="opened", at=START, subject=SUBJECT, headline="")
    assert set(webhook_body(opened)) == {
        "kind", "at", "headline", "text", "step", "outcome", "delivery", "model", "version", "champion", "regions",
        "heads",
    }  # fmt: skip


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


def refused(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError(f"cannot reach {request.url}", request=request)


def answering(status: int) -> Callable[[httpx.Request], httpx.Response]:
    return lambda _: httpx.Response(status, headers={"location": "https://elsewhere.example"})


@pytest.mark.parametrize("status", [200, 202, 204])
def test_any_success_will_do(status: int) -> None:
    send_by_http(SECRET, {"text": "x"}, httpx.MockTransport(answering(status)))


@pytest.mark.parametrize(
    ("handler", "reason", "again"),
    [
        (answering(302), "answered 302", False),
        (answering(404), "answered 404", False),
        (answering(429), "answered 429", True),
        (answering(503), "answered 503", True),
        (refused, "no answer (ConnectError)", True),
    ],
)
def test_everything_else_is_told_without_the_address(
    caplog: pytest.LogCaptureFixture,
    *,
    handler: Callable[[httpx.Request], httpx.Response],
    reason: str,
    again: bool,
) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(NotTaken) as caught:
        send_by_http(SECRET, {"text": "x"}, httpx.MockTransport(handler))
    assert (str(caught.value), caught.value.again) == (reason, again)
    assert "secret" not in "".join(traceback.format_exception(caught.value)) + caplog.text


@pytest.mark.parametrize(
    "url", ["secret", "ftp://example/secret", "https://[secret", "http://a b/secret", "https://x:secret/"]
)
def test_what_is_no_address_is_not_quoted(url: str) -> None:
    with pytest.raises(NotTaken) as caught:
        send_by_http(url, {}, httpx.MockTransport(answering(503)))
    assert "secret" not in "".join(traceback.format_exception(caught.value))
