"""What the page says of deliveries and requests, how often it looks, and that nobody's words become its markup."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from datetime import timedelta
from html import unescape

import pytest
from fakes.delivery.records import (
    ID,
    REGIONS,
    START,
    Delivery,
    bad_answers,
    delivered,
    drawn,
    interrupted,
    look_at,
    seen,
    slow,
    summary_of,
)
from fakes.delivery.registry import FakeLedgers
from fakes.html import Read
from hypothesis import given
from hypothesis import strategies as st

from pipelines.events.state import StepStatus, state_of
from pipelines.requests import DeliveryRequest, QueuedRequest, RequestState
from pipelines.views.page import EVERY_SECONDS, LAST, LivePage, PageSnapshot, Parts, SnapshotReader
from pipelines.views.section import TEMPLATES, asset, ticked
from pipelines.views.wording import headline
from registry.model import Event
from tidegate.core.errors import OutsideError
from tidegate.testing import FakeClock


def read(picture: Parts) -> Mapping[str, str]:
    return {name: Read(html).text for name, html in picture.items()}


def page(model: str, picture: Parts) -> str:
    return TEMPLATES.get_template("page.html.j2").render(model=model, parts=picture)


def at_a_canary() -> Delivery:
    delivery = Delivery("5", champion="2").open()
    delivery.prepare(REGIONS[0]).offline(canary=0.93).shadow(REGIONS[0])
    return delivery.say("canary@eu-west-1/25", "started").traffic("canary@eu-west-1/25", weight=25)


def request(
    version: str, state: RequestState = RequestState.QUEUED, note: str = "", delivery: str | None = None
) -> QueuedRequest:
    return QueuedRequest(
        number=1,
        request=DeliveryRequest(model="support-llm", version=version, alias="challenger"),
        since=START,
        state=state,
        note=note,
        delivery=delivery,
    )


def test_a_delivery_on_its_way_is_on_top_whole() -> None:
    delivery = at_a_canary().verdict(
        "canary@eu-west-1/25",
        "latency",
        "running",
        "11 of 50",
        ttft_p95_canary_seconds=0.1,
        ttft_p95_stable_seconds=0.2,
    )
    said = read(drawn(seen(delivery.events), seen(delivered("2"), id="a" * 32), after=65))
    assert "support-llm 5 is on its way: canary@eu-west-1/25." in said["news"]
    assert "running for 1:05" in said["status"]
    assert "eu-west-1: 25% on 5, 75% on 2" in said["now"]
    assert "▸ running canary@eu-west-1/25 since 09:01:02 UTC" in said["now"]
    assert "… running latency 11 of 50 Numbers TTFT p95 100 ms against 200 ms" in said["now"]
    assert "· waiting promote@eu-west-1" in said["now"]
    assert "Users of us-east-1" not in said["now"], "a region that was not touched has no traffic to show"
    assert "delivered support-llm 2 is in production" in said["earlier"]


@pytest.mark.parametrize("events", [delivered("2"), interrupted()], ids=["delivered", "interrupted"])
def test_when_nothing_runs_the_last_is_told_and_open(events: list[Event]) -> None:
    picture = drawn(seen(events))
    assert headline(state_of(events)) in Read(picture["news"]).text
    assert f'id="e-{ID}" open' in picture["earlier"]
    assert picture["now"].strip() == ""


def test_a_step_that_waits_for_a_person_says_for_what() -> None:
    delivery = at_a_canary().say("canary@eu-west-1/25", "done")
    delivery.say("canary@eu-west-1/50", "waiting", "for an approval: `tidegate approve ID STEP --by NAME`")
    picture = drawn(seen(delivery.events))
    assert "canary@eu-west-1/50 is held" in Read(picture["news"]).text
    assert "‖ held canary@eu-west-1/50" in Read(picture["now"]).text
    assert "<code>tidegate approve ID STEP --by NAME</code>" in picture["now"]


def test_one_that_died_says_how_to_carry_it_on() -> None:
    said = read(drawn(seen(at_a_canary().events, alive=False)))
    assert "support-llm 5 died at canary@eu-west-1/25" in said["now"]
    assert f"tidegate resume {ID} carries it on" in said["now"]
    assert "Nothing is being delivered" in said["news"]


def test_one_that_cannot_be_read_hides_nothing_else() -> None:
    broken = seen(delivered("3"), id="b" * 32).model_copy(update={"story": None})
    said = read(drawn(broken, seen(delivered("2"))))
    assert "support-llm 3: delivered" in said["earlier"]
    assert "Its record cannot be read." in said["earlier"]
    assert "support-llm 2 is in production" in said["earlier"]


def test_one_that_has_no_event_yet_is_on_its_way() -> None:
    assert "support-llm 9: on its way" in read(drawn(seen([])))["now"]


def test_requests_are_told_with_what_became_of_them() -> None:
    said = read(drawn(requests=[request("6"), request("7", RequestState.OVER, "given up after 3 tries")]))
    assert "Version 6 queued Version 7 over given up after 3 tries" in said["requests"]
    assert "support-llm has not been delivered yet." in said["news"]


def test_time_alone_changes_the_status_and_nothing_else() -> None:
    now, later = (drawn(seen(at_a_canary().events), after=after) for after in (60, 62))
    assert {name for name, html in now.items() if later[name] != html} == {"status"}


def test_the_page_is_whole_and_loads_only_its_own() -> None:
    every = [delivered("2"), bad_answers("3"), slow("4")]
    deliveries = [seen(events, id=f"{at:032x}") for at, events in enumerate(every)]
    html = page("support-llm", drawn(seen(at_a_canary().events), *deliveries, requests=[request("6")]))
    found = Read(html)
    assert len(found.ids) == len(set(found.ids))
    assert {"style", "onclick", "onload"}.isdisjoint(found.attributes), "the page's policy forbids them"
    assert "http" not in html.replace("http-equiv", "")
    assert found.tags.count("script") == 1
    assert found.tags.count("h1") == 1
    assert "http" not in "".join(map(asset, ("style.css", "page.css", "page.js")))


HOSTILE = "<script>alert(1)</script>"
"""With what hypothesis finds before and behind it."""


@given(st.text(), st.text())
def test_whatever_stands_in_the_ledger_is_text(before: str, after: str) -> None:
    text = f"{before}{HOSTILE}{after}\"'><img src=x onerror=alert(1)>"
    delivery = Delivery(text, champion=text).open()
    delivery.say("build", "started", text).say("build", "failed", text)
    delivery.say("canary@eu-west-1/25", "waiting", text)
    delivery.verdict("build", text, "fail", text, **{text or "x": 1.0})
    delivery.say(f"build@{text}", "traffic", region=text, weight=5)
    over = delivery.close(text, text, 4).events
    picture = drawn(seen(over[:-1]), seen(over, id=text), requests=[request(text, note=text)])
    assert_harmless(picture)


def assert_harmless(picture: Parts) -> None:
    for html in [*picture.values(), page(HOSTILE, picture)]:
        assert "<script>alert" not in html
        found = Read(html)
        assert "img" not in found.tags
        assert not any(name.startswith("on") for name in found.attributes)


@given(st.text(alphabet="`<a& \r"))
def test_what_stands_between_backticks_is_code_and_nothing_else_is_lost(text: str) -> None:
    html = ticked(text)
    odd = text.count("`") % 2
    assert html.count("<code>") == html.count("</code>") == text.count("`") // 2
    words = html.replace("<code>", "").replace("</code>", "")
    assert unescape(words).replace("`", "") == text.replace("`", "")
    assert words.count("`") == odd


class Ledger:
    """Counts looks; answers when it may."""

    def __init__(self) -> None:
        self.looks, self.silent, self.clock = 0, False, FakeClock()
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.page = LivePage("support-llm", self.look, str, self.clock)

    def look(self) -> PageSnapshot:
        self.may_answer.wait(10)
        self.looks += 1
        if self.silent:
            raise OutsideError("MLflow store http://me:secret@mlflow: no answer")
        return look_at(seen(delivered("2")))


async def test_many_who_watch_are_one_look_that_is_good_for_a_while() -> None:
    ledger = Ledger()
    pictures = await asyncio.gather(*(ledger.page.current() for _ in range(50)))
    assert all("support-llm 2 is in production" in each["earlier"] for each in pictures)
    ledger.clock.elapsed += EVERY_SECONDS / 2
    await ledger.page.current()
    assert ledger.looks == 1
    ledger.clock.elapsed += EVERY_SECONDS / 2
    await ledger.page.current()
    assert ledger.looks == 2


async def test_nobody_who_leaves_starts_a_second_look() -> None:
    ledger = Ledger()
    ledger.may_answer.clear()
    for _ in range(5):
        impatient = asyncio.create_task(ledger.page.current())
        await asyncio.sleep(0)
        impatient.cancel()
    last = asyncio.create_task(ledger.page.current())
    ledger.may_answer.set()
    await last
    assert ledger.looks == 1


async def test_a_look_that_hangs_does_not_hold_up_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.views.page.PATIENCE_SECONDS", 0.01)
    ledger = Ledger()
    ledger.may_answer.clear()
    assert "Not looked at yet" in (await ledger.page.current())["status"]
    ledger.may_answer.set()


async def test_a_ledger_that_is_silent_ends_nothing_and_its_address_is_not_told() -> None:
    ledger = Ledger()
    await ledger.page.current()
    ledger.silent = True
    for _ in range(2):
        ledger.clock.elapsed += 60
        said = await ledger.page.current()
    assert "MLflow has not been reached since 2026-01-01 00:01:00 UTC" in said["news"]
    assert "support-llm 2 is in production" in said["earlier"]
    assert "secret" not in "".join(said.values())
    ledger.silent = False
    ledger.clock.elapsed += 60
    assert "not been reached" not in (await ledger.page.current())["news"]


def looker(ledgers: FakeLedgers, *requests: QueuedRequest) -> SnapshotReader:
    return SnapshotReader("support-llm", ledgers, lambda: requests, FakeClock())


def add(ledgers: FakeLedgers, events: list[Event], id: str) -> None:
    ledgers.all[id], ledgers.recorded[id] = summary_of(events, id=id), events


def test_what_is_over_is_asked_for_once_and_what_runs_every_time() -> None:
    ledgers = FakeLedgers()
    add(ledgers, delivered("2"), "old")
    add(ledgers, Delivery("3", start=START + timedelta(hours=1)).open().events, "new")
    looking = looker(ledgers)
    looks = [looking.look() for _ in range(3)]
    assert [each.summary.id for each in looks[-1].deliveries] == ["new", "old"]
    assert ledgers.asked == ["new", "old", "new", "new"]


def test_only_the_last_are_shown_and_asked_for() -> None:
    ledgers = FakeLedgers()
    for at in range(LAST + 5):
        add(ledgers, delivered(str(at), start=START + timedelta(hours=at)), str(at))
    look = looker(ledgers).look()
    assert [each.summary.version for each in look.deliveries] == [str(LAST + 4 - at) for at in range(LAST)]
    assert look.more
    assert len(ledgers.asked) == LAST


def test_one_that_was_closed_by_another_has_an_end_in_its_story() -> None:
    ledgers, running = FakeLedgers(), Delivery("3").open().say("build", "started").events
    ended = START + timedelta(minutes=5)
    died = {"ended": ended, "outcome": "interrupted", "reason": "process 7 on here died"}
    ledgers.all["1"], ledgers.recorded["1"] = summary_of(running, id="1").model_copy(update=died), running
    story = looker(ledgers).look().deliveries[0].story
    assert story is not None
    assert (story.outcome, story.reason, story.ended) == ("interrupted", "process 7 on here died", ended)
    assert {step.state for step in story.steps} == {StepStatus.FAILED, StepStatus.SKIPPED}


def test_a_record_that_makes_no_sense_is_one_without_a_story() -> None:
    ledgers = FakeLedgers()
    add(ledgers, delivered("2"), "1")
    ledgers.recorded["1"] = [Event(at=START, step="delivery", kind="started", message="", data={"steps": 7})]
    assert looker(ledgers).look().deliveries[0].story is None


def test_requests_that_have_a_delivery_or_were_outrun_are_not_waiting() -> None:
    waiting = [request("1", RequestState.QUEUED), request("1", RequestState.STARTED), request("1", RequestState.OVER)]
    others = [
        request("1", RequestState.SUPERSEDED),
        request("1", RequestState.STARTED, delivery="1"),
        request("1", RequestState.OVER, delivery="1"),
    ]
    assert looker(FakeLedgers(), *waiting, *others).look().requests == tuple(waiting)
