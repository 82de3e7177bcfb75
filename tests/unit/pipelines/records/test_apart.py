"""Displays next to a delivery: none that is slow or broken holds up the delivery or the other displays."""

from __future__ import annotations

import pytest
from fakes.delivery.world import Recorder

from pipelines.events.listeners import QueuedListener
from registry.model import Event
from tidegate.testing import START

EVENTS = [Event(at=START, step="build", kind=kind, message="") for kind in ("started", "done")]


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
