"""One writer for a ledger: in order, exactly once, and nobody waits who need not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event as Signal
from typing import Any

import pytest
from fakes.delivery.ledger import AwayLedger, FakeLedger
from fakes.delivery.world import AliasBook

from pipelines.events.writer import (
    Entry,
    EventEntry,
    FileEntry,
    Spool,
    Writer,
    WriterLimits,
    read_entries,
    write_entry,
    write_leftovers,
)
from registry.errors import StoreUnreachable, UnknownDelivery
from registry.model import DeliverySummary, Event
from tidegate.core.errors import OutsideError
from tidegate.testing import START, FakeClock

PATIENT = WriterLimits(pauses=(0.001,))


def event(step: str) -> Event:
    return Event(at=START, step=step, kind="evidence", message="so")


def said(step: str) -> EventEntry:
    return EventEntry(event=event(step))


class Desk:
    """A writer between a queue and a store that may be away."""

    def __init__(self, folder: Path) -> None:
        self.clock, self.folder = FakeClock(), folder / "unwritten"
        self.ledger = AwayLedger(FakeLedger(self.clock))
        self.kept = self.ledger.ledger
        self.writers: list[Writer] = []

    def writer(self) -> Writer:
        spool = Spool(self.folder, "1")
        ledger: Any = self.ledger
        self.writers.append(Writer(ledger, None, self.clock, spool=spool, limits=PATIENT))
        return self.writers[-1]

    def on_disk(self) -> list[Entry]:
        return [entry for path in sorted(self.folder.glob("*.jsonl")) for entry in read_entries(path)]

    def summary(self, delivery: str) -> DeliverySummary:
        if delivery != "1":
            raise UnknownDelivery(f"there is no delivery {delivery}")
        return self.kept.summary

    def join(self, delivery: str, *, carries: bool = True) -> Any:
        self.summary(delivery)
        return self.ledger

    def next_command(self) -> list[str]:
        complaints: list[str] = []
        deliveries: Any = self
        write_leftovers(self.folder, deliveries, AliasBook(), complaints.append)
        return complaints


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.ledger.come_back()
    for writer in desk.writers:
        writer.end()


def test_entries_are_written_in_their_order_and_leave_nothing_on_the_disk(desk: Desk) -> None:
    writer = desk.writer()
    for step in "abc":
        writer.put(said(step))
    writer.put(said("d")).result(5)
    assert [each.step for each in desk.kept.events] == list("abcd")
    writer.end()
    assert list(desk.folder.iterdir()) == []


def test_an_event_is_known_again_as_a_store_gives_it_back(desk: Desk) -> None:
    told = Event(at=START, step="a", kind="verdict", message="", data={"transcripts": {"canary": (3, "abc")}})
    desk.kept.append(Event.model_validate_json(told.model_dump_json()))
    write_entry(EventEntry(event=told), desk.kept, None, again=True)
    assert len(desk.kept.events) == 1


def test_who_puts_something_waits_for_no_store(desk: Desk) -> None:
    desk.ledger.hang()
    writer = desk.writer()
    first, second = writer.put(said("a")), writer.put(said("b"))
    assert not first.done()
    assert not second.done()
    assert [entry.event.step for entry in desk.on_disk() if isinstance(entry, EventEntry)] == ["a", "b"]
    desk.ledger.come_back()
    second.result(5)
    assert [each.step for each in desk.kept.events] == ["a", "b"]


def test_a_store_that_was_away_gets_each_entry_once(desk: Desk) -> None:
    writer = desk.writer()
    desk.ledger.go_away(calls=5)
    writer.put(said("a"))
    writer.put(said("b")).result(5)
    assert [each.step for each in desk.kept.events] == ["a", "b"]
    assert writer.silence is None


def test_an_answer_that_is_lost_does_not_write_an_event_twice(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    append, answers = desk.kept.append, iter([StoreUnreachable("no answer (ReadTimeout)")])

    def written_and_cut_off(each: Event) -> None:
        append(each)
        if error := next(answers, None):
            raise error

    monkeypatch.setattr(desk.kept, "append", written_and_cut_off)
    writer = desk.writer()
    writer.put(said("a")).result(5)
    assert [each.step for each in desk.kept.events] == ["a"]


def test_what_the_store_refuses_is_told_and_holds_up_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    append = desk.kept.append

    def picky(each: Event) -> None:
        if each.step == "a":
            raise OutsideError("too long")
        append(each)

    monkeypatch.setattr(desk.kept, "append", picky)
    writer = desk.writer()
    refused = writer.put(said("a"))
    writer.put(said("b")).result(5)
    with pytest.raises(OutsideError, match="too long"):
        refused.result(0)
    assert str(writer.refusal) == "too long"


def test_a_file_store_that_is_away_alone_holds_up_no_event(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "report.html").write_text("all of it")
    attach, there = desk.kept.attach, Signal()

    def bucket(path: Path, *, folder: str = "") -> None:
        if not there.is_set():
            raise StoreUnreachable("no bucket")
        attach(path, folder=folder)

    monkeypatch.setattr(desk.kept, "attach", bucket)
    writer = desk.writer()
    file = writer.put(FileEntry(path=tmp_path / "report.html"))
    writer.put(said("a")).result(5)
    there.set()
    file.result(5)
    assert desk.kept.attached == ["report.html"]


def test_a_question_does_not_wait_behind_what_cannot_be_written(desk: Desk) -> None:
    writer = desk.writer()
    desk.ledger.go_away(calls=3)
    writer.put(said("a"))
    assert writer.ask(lambda: 42).result(5) == 42


def test_what_is_held_goes_on_when_it_is_let_go(desk: Desk) -> None:
    writer = desk.writer()
    writer.hold()
    held = writer.put(said("a"))
    assert not held.done()
    writer.release()
    held.result(5)


def test_the_next_process_writes_what_is_left_once(desk: Desk) -> None:
    desk.ledger.go_away()
    writer = desk.writer()
    for step in "abc":
        writer.put(said(step))
    assert desk.next_command() == [], "a process that lives keeps its own file"
    writer.end()
    assert "records of a delivery wait in" in desk.next_command()[0]
    desk.ledger.come_back()
    assert desk.next_command() == []
    assert desk.next_command() == []
    assert [each.step for each in desk.kept.events] == list("abc")
    assert list(desk.folder.iterdir()) == []


def test_a_half_written_last_line_costs_only_itself(desk: Desk) -> None:
    desk.folder.mkdir()
    whole = said("a").model_dump_json()
    (desk.folder / "1.jsonl").write_text(whole + "\n" + whole[:20])
    assert desk.next_command() == []
    assert [each.step for each in desk.kept.events] == ["a"]


def test_a_delivery_that_others_closed_keeps_its_ending_and_the_records_their_file(desk: Desk) -> None:
    desk.folder.mkdir()
    (desk.folder / "1.jsonl").write_text(said("a").model_dump_json() + "\n")
    desk.kept.bury()
    (complaint,) = desk.next_command()
    assert "was closed before its last records could be written" in complaint
    assert desk.kept.events == []
    assert [path.name for path in desk.folder.iterdir()] == ["1.refused"]


def test_records_of_another_store_are_left_to_it(desk: Desk) -> None:
    desk.folder.mkdir()
    (desk.folder / "other.jsonl").write_text(said("a").model_dump_json() + "\n")
    assert desk.next_command() == []
    assert [path.name for path in desk.folder.iterdir()] == ["other.jsonl"]


def test_two_processes_of_one_delivery_have_a_file_each(tmp_path: Path) -> None:
    first, second = Spool(tmp_path, "1"), Spool(tmp_path, "1")
    assert first.path != second.path
    first.end()
    second.end()
    assert list(tmp_path.iterdir()) == []


def test_what_a_crash_cut_short_does_not_swallow_what_comes_behind_it(tmp_path: Path) -> None:
    before = Spool(tmp_path, "1")
    before.add(said("one"))
    before.add(said("two"))
    path, whole = before.path, before.path.read_bytes()
    before.clear()
    before.end()
    path.write_bytes(whole[:-20])
    spool = Spool(tmp_path, "1")
    spool.add(said("three"))
    assert spool.left() == [said("one"), said("three")]
    spool.clear()
    spool.end()
