"""Lines for the person who waits: to a logger, or where the command line wants them."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from tidegate.cli import main
from tidegate.cli.output import Output, print_data
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


def test_data_goes_to_stdout_and_notes_of_a_command_to_stderr(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(arguments: list[str]) -> int:
        print_data({"version": arguments[0], "file": Path("model/config.json")}, Output.JSON)
        note("starting\x1b[2J")
        return 0

    monkeypatch.setattr("tidegate.cli._run", run)
    assert main(["2"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"version": "2", "file": "model/config.json"}
    assert err.startswith("starting")
    assert "\x1b" not in err
