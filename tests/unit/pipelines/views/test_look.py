"""What is asked of the ledger, and how often."""

from __future__ import annotations

from datetime import timedelta

from fakes.delivery.records import START, Delivery, delivered, summary_of
from fakes.delivery.registry import FakeLedgers

from pipelines.events.state import StepStatus
from pipelines.requests import DeliveryRequest, QueuedRequest, RequestState
from pipelines.views.page import LAST, SnapshotReader
from registry.model import Event
from tidegate.testing import FakeClock


def looker(ledgers: FakeLedgers, *requests: QueuedRequest) -> SnapshotReader:
    return SnapshotReader("support-llm", ledgers, lambda: requests, FakeClock())


def add(ledgers: FakeLedgers, events: list[Event], id: str) -> None:
    ledgers.all[id], ledgers.recorded[id] = summary_of(events, id=id), events


def request(state: RequestState, delivery: str | None = None) -> QueuedRequest:
    return QueuedRequest(
        number=1, request=DeliveryRequest(model="m", version="1", alias="a"), since=START, state=state,
        delivery=delivery
    )  # fmt: skip


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
    waiting = [request(RequestState.QUEUED), request(RequestState.STARTED), request(RequestState.OVER)]
    others = [request(RequestState.SUPERSEDED), request(RequestState.STARTED, "1"), request(RequestState.OVER, "1")]
    assert looker(FakeLedgers(), *waiting, *others).look().requests == tuple(waiting)
