"""Listeners of a journal: a file that outlives its process, and displays that hold up nobody."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from fakes.delivery.world import Recorder

from pipelines.events.listeners import EventFile, QueuedListener
from registry.model import Event
from tidegate.testing import START

EVENTS = [Event(at=START, step="build", kind=kind, message="") for kind in ("started", "done")]


def test_a_display_that_breaks_keeps_nothing_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    heard = Recorder()

    class Broken:
        def on_event(self, event: Event) -> None:
            raise ZeroDivisionError

    with QueuedListener([Broken().on_event, heard.on_event]) as displays:
        for event in EVENTS:
            displays.on_event(event)
    assert heard.events == EVENTS
    assert "a display could not take build started" in caplog.text


def event(message: str) -> Event:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Event(at=at, step="build", kind="evidence", message=message, data={"done": 1})


@pytest.fixture
def file(tmp_path: Path) -> EventFile:
    return EventFile(tmp_path / "deliveries" / "7" / "events.jsonl")


@pytest.mark.parametrize(
    "message", ["two\nlines", "a\u2028line separator", "next\x85line", "form\x0cfeed", "é 価格 🙂"]
)
def test_an_event_is_one_line_whatever_an_engine_wrote_in_its_log(file: EventFile, message: str) -> None:
    file.on_event(event(message))
    file.on_event(event("after"))
    assert [each.message for each in file.read()] == [message, "after"]


@pytest.mark.parametrize("lost", [1, 10, 60])
def test_a_last_line_that_a_crash_cut_short_is_left_out(file: EventFile, lost: int) -> None:
    file.on_event(event("one"))
    file.on_event(event("価格"))
    whole = file.path.read_bytes()
    file.path.write_bytes(whole[:-lost])
    assert list(file.read()) == [event("one")]
