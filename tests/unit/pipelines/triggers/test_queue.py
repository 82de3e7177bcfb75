"""The inbox takes every request once, and forgets nothing that it has answered for."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fakes.delivery.registry import Inbox
from hypothesis import given
from hypothesis import strategies as st

from pipelines.requests import (
    EVER,
    SLACK,
    DeliveryRequest,
    QueuedRequest,
    RequestState,
    after_failed_attempt,
    answer,
    lapsed,
)
from pipelines.triggers.webhooks import TOLERANCE, WebhookStatus
from registry.model import DeliverySummary
from tidegate.core.errors import Refused

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def request(version: int = 7) -> DeliveryRequest:
    return DeliveryRequest(model="support-llm", version=str(version), alias="challenger")


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[Inbox]:
    made = Inbox(tmp_path / "serve" / "inbox.db")
    yield made
    made.close()


def standing(inbox: Inbox) -> list[QueuedRequest]:
    return inbox.standing("support-llm", "challenger")


def compare(inbox: Inbox, marked: str | None = None, *, at: datetime) -> DeliveryRequest | None:
    return inbox.compare("support-llm", "challenger", marked, at)


def test_ids_are_kept_for_as_long_as_their_messages_could_be_believed(inbox: Inbox) -> None:
    inbox.hear("a", None, NOON)
    assert inbox.hear("a", None, NOON + 2 * TOLERANCE) is WebhookStatus.REPLAYED
    assert inbox.hear("a", None, NOON + 3 * TOLERANCE) is WebhookStatus.NOTED


def test_many_that_say_the_same_at_once_are_one_request(inbox: Inbox) -> None:
    with ThreadPoolExecutor(16) as threads:
        taken = list(threads.map(lambda number: inbox.hear(f"m{number}", request(), NOON), range(64)))
    assert sorted(taken) == [WebhookStatus.DUPLICATE] * 63 + [WebhookStatus.QUEUED]


def test_what_was_answered_for_survives_the_process(inbox: Inbox, tmp_path: Path) -> None:
    inbox.hear("a", request(), NOON)
    inbox.close()
    again = Inbox(tmp_path / "serve" / "inbox.db")
    assert again.hear("a", request(), NOON) is WebhookStatus.REPLAYED
    assert again.hear("b", request(), NOON) is WebhookStatus.DUPLICATE
    again.close()


def test_an_inbox_has_one_owner(inbox: Inbox, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="another `tidegate serve`"):
        Inbox(tmp_path / "serve" / "inbox.db")


def test_a_mark_that_was_there_at_the_first_look_may_be_old_and_one_that_came_later_is_not(inbox: Inbox) -> None:
    compare(inbox, "7", at=NOON)
    compare(inbox, "8", at=NOON + MINUTE)
    assert [entry.since for entry in inbox.all] == [NOON, EVER]


@given(messages=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4)), max_size=25))
def test_whatever_comes_each_version_stands_once_in_the_order_of_arrival(
    tmp_path_factory: pytest.TempPathFactory, messages: list[tuple[int, int]]
) -> None:
    inbox = Inbox(tmp_path_factory.mktemp("inbox") / "inbox.db")
    expected: list[str] = []
    heard: set[int] = set()
    for id, version in messages:
        taken = inbox.hear(str(id), request(version), NOON)
        assert (taken is WebhookStatus.REPLAYED) == (id in heard)
        if id not in heard and str(version) not in expected:
            assert taken is WebhookStatus.QUEUED
            expected.append(str(version))
        heard.add(id)
    assert [entry.request.version for entry in standing(inbox)] == expected
    inbox.close()


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
    assert lapsed([entry(7, RequestState.STARTED)], None, NOON + MINUTE) == []


def test_a_look_at_the_registry_says_nothing_of_marks_that_were_set_after_it() -> None:
    assert lapsed([entry(7, since=NOON + MINUTE)], None, NOON) == []


def test_one_that_began_and_ended_just_before_we_heard_of_the_request_answers_it() -> None:
    found = delivery(started=NOON - SLACK, ended=True)
    assert answer(entry(), [found], ()) == found


def test_who_waited_for_somebody_elses_delivery_that_was_withdrawn_is_queued_again_at_once() -> None:
    again = after_failed_attempt(entry(state=RequestState.STARTED, delivery="withdrawn"), NOON)
    assert (again.state, again.delivery, again.not_before) == (RequestState.QUEUED, None, EVER)
