"""Which request is next, and which have had their time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pipelines.requests import (
    EVER,
    SLACK,
    DeliveryRequest,
    QueuedRequest,
    QueuePolicy,
    RequestState,
    after_failed_attempt,
    answer,
    lapsed,
)
from registry.model import DeliverySummary

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def entry(
    version: int = 7, state: RequestState = RequestState.QUEUED, *, since: datetime = NOON, **more: object
) -> QueuedRequest:
    request = DeliveryRequest(model="support-llm", version=str(version), alias="challenger")
    return QueuedRequest.model_validate({"number": version, "request": request, "since": since, "state": state, **more})


def delivery(version: int = 7, *, started: datetime = NOON, id: str = "d", ended: bool = False) -> DeliverySummary:
    return DeliverySummary(
        id=id,
        name="support-llm",
        version=str(version),
        champion="1",
        started=started,
        ended=started + MINUTE if ended else None,
        host="here",
        pid=1,
        heartbeat=started,
    )


def test_a_delivery_that_runs_keeps_its_entry() -> None:
    assert lapsed([entry(7, RequestState.STARTED)], set(), NOON + MINUTE, QueuePolicy.NEWEST) == []


def test_a_look_at_the_registry_says_nothing_of_marks_that_were_set_after_it() -> None:
    assert lapsed([entry(7, since=NOON + MINUTE)], set(), NOON, QueuePolicy.NEWEST) == []


def test_one_that_began_and_ended_just_before_we_heard_of_the_request_answers_it() -> None:
    found = delivery(started=NOON - SLACK, ended=True)
    assert answer(entry(), [found], ()) == found


def test_who_waited_for_somebody_elses_delivery_that_was_withdrawn_is_queued_again_at_once() -> None:
    again = after_failed_attempt(entry(state=RequestState.STARTED, delivery="withdrawn"), NOON)
    assert (again.state, again.delivery, again.not_before) == (RequestState.QUEUED, None, EVER)
