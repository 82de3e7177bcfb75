from datetime import UTC, datetime

import pytest
from fakes.delivery.records import slow

from registry.chain import linked
from registry.model import Event, StepId
from registry.record import (
    MAX_PARTS,
    TAG_CHARACTERS,
    describe,
    entry_tags,
    read_record,
)

AT = datetime(2026, 1, 1, 9, 30, tzinfo=UTC)


def event(message: str = "it works", *, step: str = "canary@eu-west-1/25", kind: str = "done", **data: object) -> Event:
    return Event(at=AT, step=step, kind=kind, message=message, data=data)


def event_tags(number: int, event: Event, writer: str = "") -> dict[str, str]:
    return entry_tags(linked(event, (), delivery="1", number=number, writer=writer, seal=None))


def events_in(tags: dict[str, str]) -> list[Event]:
    return read_record(tags).events


def test_events_are_read_back_in_their_order() -> None:
    events = slow()
    tags = {key: value for number, one in enumerate(events, 1) for key, value in event_tags(number, one).items()}

    assert events_in(dict(reversed(tags.items())) | {"mlflow.user": "x"}) == events


def test_a_long_event_is_kept_in_parts_that_a_tag_can_hold() -> None:
    long = event("é" * 3 * TAG_CHARACTERS)
    tags = event_tags(7, long)

    assert len(tags) == 4
    assert all(len(value) <= TAG_CHARACTERS for value in tags.values())
    assert events_in(tags) == [long]


def test_an_event_with_a_part_missing_did_not_happen_and_its_number_is_not_used_again() -> None:
    tags = event_tags(1, event()) | event_tags(2, event("x" * 2 * TAG_CHARACTERS))
    del tags["mlflow.tidegate.event.0002.2of3"]

    assert events_in(tags) == [event()]
    assert read_record(tags).next_number == 3


def test_processes_that_choose_the_same_number_do_not_write_over_each_other() -> None:
    tags = event_tags(1, event("open")) | event_tags(2, event("b"), "bbbb") | event_tags(2, event("a" * 5000), "aaaa")
    tags |= event_tags(3, event("last"), "aaaa")

    assert [one.message[:4] for one in events_in(tags)] == ["open", "aaaa", "b", "last"]
    assert read_record(tags).next_number == 4


def test_an_event_that_no_request_can_carry_is_refused_before_it_is_sent() -> None:
    with pytest.raises(ValueError, match="the ledger keeps at most"):
        event_tags(1, event("x" * (MAX_PARTS + 1) * TAG_CHARACTERS))


def test_numbers_go_on_past_four_digits() -> None:
    tags = event_tags(9999, event("a")) | event_tags(10000, event("b"))

    assert [one.message for one in events_in(tags)] == ["a", "b"]
    assert read_record(tags).next_number == 10001


@pytest.mark.parametrize(
    ("step", "region"),
    [("canary@eu-west-1/25", "eu-west-1"), ("promote@eu-west-1", "eu-west-1"), ("bake@1", None), ("finalize", None)],
)
def test_a_step_names_its_region(step: str, region: str | None) -> None:
    assert StepId.parsed(step).region == region


def test_the_words_of_others_link_nowhere_and_load_nothing_in_the_note() -> None:
    said = "<img src=https://evil.example/beacon> [Approve here](https://evil.example)\n@team"
    told = "\\<img `src=https://evil.example/beacon>` \\[Approve `here](https://evil.example)` `@team`"
    assert describe("m 4", "failed", said) == f"**m 4 was rolled back after a failure: {told}**\n"
