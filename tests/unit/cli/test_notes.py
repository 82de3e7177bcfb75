"""Lines for the person who waits: to a logger, or where the command line wants them."""

from __future__ import annotations

import logging

import pytest

from tidegate.core.process import note, notes_to
from tidegate.core.threads import call_in_thread


def test_without_a_command_line_notes_are_logged(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO, logger="tidegate"):
        note("starting 100 %")
    assert caplog.messages == ["starting 100 %"]
    assert capsys.readouterr().err == ""


async def test_a_sink_hears_threads_too_and_only_within_its_context() -> None:
    heard: list[str] = []
    with notes_to(heard.append):
        note("here")
        await call_in_thread(note, "from a thread")
    note("afterwards")
    assert heard == ["here", "from a thread"]
