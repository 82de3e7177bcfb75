"""Displays next to a delivery: none that is slow or broken holds up the delivery or the other displays."""

from __future__ import annotations

from threading import Event as Signal

import pytest
from fakes.delivery.world import Recorder

from pipelines.events.listeners import QueuedListener
from pipelines.events.state import state_of
from registry.model import Event
from tidegate.testing import START

EVENTS = [Event(at=START, step="build", kind=kind, message="") for kind in ("started", "done")]


def test_listeners_hear_everything_in_its_order_before_the_end() -> None:
    heard = Recorder()
    with QueuedListener([heard]) as displays:
        for event in EVENTS:
            displays.on_event(event)
    assert heard.events == EVENTS


def test_a_display_that_takes_nothing_more_holds_up_nobody() -> None:
    blocked = Signal()

    class Terminal:
        def on_event(self, event: Event) -> None:
            blocked.wait()

    with QueuedListener([Terminal()], patience_seconds=0.01) as displays:
        displays.on_event(EVENTS[0])
    blocked.set()


def test_a_display_that_breaks_keeps_nothing_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    heard = Recorder()

    class Broken:
        def on_event(self, event: Event) -> None:
            raise ZeroDivisionError

    with QueuedListener([Broken(), heard]) as displays:
        for event in EVENTS:
            displays.on_event(event)
    assert heard.events == EVENTS
    assert "a display could not take build started" in caplog.text


def test_a_verdict_that_says_what_it_was_read_from_is_told_like_any_other() -> None:
    data = {"gate": "errors", "outcome": "pass", "transcripts": {"canary@eu-west-1": (10, "ab")}}
    story = state_of([Event(at=START, step="canary@eu-west-1/10", kind="verdict", message="fine", data=data)])
    assert story.gates[0].latest.reason == "fine"
