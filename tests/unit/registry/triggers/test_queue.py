"""Which request is next, and which have had their time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from pipelines.requests import (
    EVER,
    PAUSE,
    SLACK,
    TRIES,
    DeliveryRequest,
    QueuedRequest,
    QueuePolicy,
    RequestState,
    after_failed_attempt,
    answer,
    lapsed,
    next_of,
    superseded,
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


def test_who_pauses_holds_its_place() -> None:
    assert next_of([entry(7, not_before=NOON + MINUTE), entry(8)], NOON) is None
    assert next_of([entry(7, not_before=NOON + MINUTE), entry(8)], NOON + MINUTE) is not None


@given(st.lists(st.integers(1, 99), unique=True), st.sampled_from(QueuePolicy))
def test_whatever_is_queued_one_is_left_to_start(versions: list[int], policy: QueuePolicy) -> None:
    queued = [entry(version) for version in versions]
    overtaken = superseded(queued, policy)
    left = [each for each in queued if each not in overtaken]
    assert bool(left) == bool(queued)
    assert next_of(left, NOON) == (left[0] if left else None)


def test_a_delivery_that_runs_keeps_its_entry() -> None:
    assert lapsed([entry(7, RequestState.STARTED)], set(), NOON + MINUTE, QueuePolicy.NEWEST) == []


def test_a_look_at_the_registry_says_nothing_of_marks_that_were_set_after_it() -> None:
    assert lapsed([entry(7, since=NOON + MINUTE)], set(), NOON, QueuePolicy.NEWEST) == []


def test_who_waits_outlives_that_the_alias_goes_on_but_not_that_it_is_taken_away() -> None:
    assert lapsed([entry(7)], {"8"}, NOON + MINUTE, QueuePolicy.WAIT) == []
    assert lapsed([entry(7)], set(), NOON + MINUTE, QueuePolicy.WAIT) == [entry(7)]


def test_one_that_runs_answers_it_though_it_began_before() -> None:
    found = delivery(started=NOON - MINUTE, id="live")
    assert answer(entry(), [found], {"live"}) == found


def test_a_delivery_that_began_after_the_request_answers_it_no_matter_who_started_it() -> None:
    found = delivery(started=NOON + MINUTE, ended=True)
    assert answer(entry(), [delivery(8), found], ()) == found


def test_one_that_began_and_ended_just_before_we_heard_of_the_request_answers_it() -> None:
    found = delivery(started=NOON - SLACK, ended=True)
    assert answer(entry(), [found], ()) == found


def test_who_waited_for_somebody_elses_delivery_that_was_withdrawn_is_queued_again_at_once() -> None:
    again = after_failed_attempt(entry(state=RequestState.STARTED, delivery="withdrawn"), NOON)
    assert (again.state, again.delivery, again.not_before) == (RequestState.QUEUED, None, EVER)


def test_a_try_in_vain_is_repeated_after_ever_longer_pauses_and_then_given_up() -> None:
    pauses = []
    for tries in range(1, TRIES):
        again = after_failed_attempt(entry(state=RequestState.STARTED, tries=tries), NOON)
        assert again.state is RequestState.QUEUED
        pauses.append(again.not_before - NOON)
    assert pauses == [PAUSE, 2 * PAUSE]
    last = after_failed_attempt(entry(state=RequestState.STARTED, tries=TRIES), NOON)
    assert (last.state, last.note) == (RequestState.OVER, "given up: 3 tries, no delivery")
