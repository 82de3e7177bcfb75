"""The inbox takes every wish once, and forgets nothing that it has answered for."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.serving.inbox import Inbox, Taken
from registry.triggers.model import EVER, Entry, State, Wish
from registry.triggers.queue import Policy
from registry.triggers.signature import TOLERANCE
from tidegate.core.errors import Refused

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def wish(version: int = 7) -> Wish:
    return Wish(model="support-llm", version=str(version), alias="challenger")


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[Inbox]:
    made = Inbox(tmp_path / "serve" / "inbox.db")
    yield made
    made.close()


def standing(inbox: Inbox) -> list[Entry]:
    return inbox.standing("support-llm", "challenger")


def compare(inbox: Inbox, *marked: int, at: datetime, policy: Policy = Policy.NEWEST) -> list[Wish]:
    return inbox.compare("support-llm", "challenger", {str(each) for each in marked}, at, policy)


def test_a_wish_is_queued_once_however_often_it_is_said(inbox: Inbox) -> None:
    assert [inbox.hear(id, wish(), NOON) for id in "ab"] == [Taken.QUEUED, Taken.DUPLICATE]
    assert [entry.wish for entry in standing(inbox)] == [wish()]


def test_a_message_is_heard_once(inbox: Inbox) -> None:
    assert [inbox.hear("a", each, NOON) for each in (wish(), wish(8), None)] == [
        Taken.QUEUED,
        Taken.REPLAYED,
        Taken.REPLAYED,
    ]


def test_ids_are_kept_for_as_long_as_their_messages_could_be_believed(inbox: Inbox) -> None:
    inbox.hear("a", None, NOON)
    assert inbox.hear("a", None, NOON + 2 * TOLERANCE) is Taken.REPLAYED
    assert inbox.hear("a", None, NOON + 3 * TOLERANCE) is Taken.NOTED


def test_many_that_say_the_same_at_once_are_one_wish(inbox: Inbox) -> None:
    with ThreadPoolExecutor(16) as threads:
        taken = list(threads.map(lambda number: inbox.hear(f"m{number}", wish(), NOON), range(64)))
    assert sorted(taken) == [Taken.DUPLICATE] * 63 + [Taken.QUEUED]


def test_what_was_answered_for_survives_the_process(inbox: Inbox, tmp_path: Path) -> None:
    inbox.hear("a", wish(), NOON)
    inbox.close()
    again = Inbox(tmp_path / "serve" / "inbox.db")
    assert again.hear("a", wish(), NOON) is Taken.REPLAYED
    assert again.hear("b", wish(), NOON) is Taken.DUPLICATE
    again.close()


def test_an_inbox_has_one_owner(inbox: Inbox, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="another `tidegate serve`"):
        Inbox(tmp_path / "serve" / "inbox.db")


def test_looking_finds_what_no_message_brought(inbox: Inbox) -> None:
    assert compare(inbox, 7, at=NOON) == [wish()]
    assert compare(inbox, 7, at=NOON + MINUTE) == []


def test_a_mark_that_was_there_at_the_first_look_may_be_old_and_one_that_came_later_is_not(inbox: Inbox) -> None:
    compare(inbox, 7, at=NOON)
    compare(inbox, 8, at=NOON + MINUTE)
    assert [entry.since for entry in inbox.last(2)] == [NOON, EVER]


def test_a_mark_that_is_set_again_after_it_was_gone_is_a_new_wish(inbox: Inbox) -> None:
    inbox.hear("a", wish(), NOON)
    (entry,) = standing(inbox)
    inbox.update(entry.model_copy(update={"state": State.OVER}))
    compare(inbox, at=NOON + MINUTE)
    assert standing(inbox) == []
    assert inbox.hear("b", wish(), NOON + 2 * MINUTE) is Taken.QUEUED


def test_what_is_queued_when_its_mark_goes_is_withdrawn(inbox: Inbox) -> None:
    inbox.hear("a", wish(), NOON)
    compare(inbox, 8, at=NOON + MINUTE)
    assert [(entry.wish.version, entry.state) for entry in inbox.last(2)] == [
        ("8", State.QUEUED),
        ("7", State.WITHDRAWN),
    ]


def test_who_waits_stays_when_the_alias_goes_on(inbox: Inbox) -> None:
    inbox.hear("a", wish(), NOON)
    compare(inbox, 8, at=NOON + MINUTE, policy=Policy.WAIT)
    assert [entry.wish.version for entry in standing(inbox)] == ["7", "8"]


@given(messages=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4)), max_size=25))
def test_whatever_comes_each_version_stands_once_in_the_order_of_arrival(
    tmp_path_factory: pytest.TempPathFactory, messages: list[tuple[int, int]]
) -> None:
    inbox = Inbox(tmp_path_factory.mktemp("inbox") / "inbox.db")
    expected: list[str] = []
    heard: set[int] = set()
    for id, version in messages:
        taken = inbox.hear(str(id), wish(version), NOON)
        assert (taken is Taken.REPLAYED) == (id in heard)
        if id not in heard and str(version) not in expected:
            assert taken is Taken.QUEUED
            expected.append(str(version))
        heard.add(id)
    assert [entry.wish.version for entry in standing(inbox)] == expected
    inbox.close()
