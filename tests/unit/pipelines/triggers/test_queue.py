"""The log takes every request once, and forgets nothing that it has answered for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.requests import (
    EVER,
    KEPT,
    SLACK,
    DeliveryRequest,
    QueuedRequest,
    RequestLog,
    RequestState,
    after_failed_attempt,
    answer,
)
from pipelines.triggers.queue import RequestFile
from registry.model import DeliverySummary
from tidegate.core.errors import Refused

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def request(version: int) -> DeliveryRequest:
    return DeliveryRequest(model="support-llm", version=str(version), alias="challenger")


def looks(*marked: int, state: RequestState = RequestState.QUEUED) -> RequestLog:
    """After a look a minute, each of which shows one version, or none by a 0; the first gets into `state`."""
    log = RequestLog()
    for at, version in enumerate(marked):
        log = log.after_look(request(version) if version else None, NOON + at * MINUTE)
        log = log if at else log.updated(log.entries[0].model_copy(update={"state": state})) if version else log
    return log


def shown(log: RequestLog) -> list[tuple[str, str, bool]]:
    return [(each.request.version, str(each.state), each.standing) for each in log.entries]


def test_a_mark_that_was_there_at_the_first_look_may_be_old_and_one_that_came_later_is_not() -> None:
    assert [each.since for each in looks(7, 8).entries] == [EVER, NOON]


def test_an_alias_that_is_set_again_after_it_was_gone_is_a_new_request() -> None:
    assert shown(looks(7, 7, 0, 7, state=RequestState.OVER)) == [("7", "over", False), ("7", "queued", True)]


def test_what_is_queued_when_its_alias_goes_on_is_withdrawn_and_a_delivery_that_runs_keeps_its_request() -> None:
    assert shown(looks(7, 8)) == [("7", "withdrawn", False), ("8", "queued", True)]
    assert shown(looks(7, 8, 7, state=RequestState.STARTED)) == [("7", "started", True), ("8", "withdrawn", False)]


@given(st.lists(st.integers(0, 3), max_size=3 * KEPT))
def test_whatever_is_shown_one_request_stands_and_the_log_stays_small(marked: list[int]) -> None:
    log = looks(*marked)
    assert [each.request.version for each in log.entries if each.standing] == [
        str(each) for each in marked[-1:] if each
    ]
    numbers = [each.number for each in log.entries]
    assert numbers == sorted(set(numbers))
    assert len(numbers) <= KEPT


def test_what_was_answered_for_survives_the_process_and_has_one_owner(tmp_path: Path) -> None:
    with RequestFile(tmp_path) as first:
        first.write(looks(7, state=RequestState.STARTED))
        with pytest.raises(Refused, match="another `tidegate serve`"):
            RequestFile(tmp_path)
    with RequestFile(tmp_path) as again:
        assert shown(again.log) == [("7", "started", True)]
    (tmp_path / "requests.json").write_text("{}}")
    with pytest.raises(Refused, match="cannot be read; remove it"):
        RequestFile(tmp_path)


def entry(**more: object) -> QueuedRequest:
    return QueuedRequest.model_validate({"number": 1, "request": request(7), "since": NOON, **more})


def test_one_that_began_and_ended_just_before_we_heard_of_the_request_answers_it() -> None:
    began = NOON - SLACK
    found = DeliverySummary(
        id="d",
        name="support-llm",
        version="7",
        champion="1",
        started=began,
        ended=began + MINUTE,
        host="here",
        pid=1,
        heartbeat=began,
    )
    assert answer(entry(), [found], ()) == found


def test_who_waited_for_somebody_elses_delivery_that_was_withdrawn_is_queued_again_at_once() -> None:
    again = after_failed_attempt(entry(state=RequestState.STARTED, delivery="withdrawn"), NOON)
    assert (again.state, again.delivery, again.not_before) == (RequestState.QUEUED, None, EVER)
