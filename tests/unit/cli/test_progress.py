"""A delivery on the screen: a line for each event, and on a terminal what moves below them."""

from __future__ import annotations

from io import StringIO

import pytest
from fakes.delivery.records import Delivery, bad_answers, in_canary
from rich.console import Console

from pipelines.events.state import state_of
from registry.model import Event
from tidegate.cli.settings import settings
from tidegate.cli.views.delivery import PlainConsole, Progress, at_work, follow
from tidegate.testing import START, FakeClock


def text(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def plain_lines(events: list[Event]) -> list[str]:
    console = Console(file=StringIO(), width=80)
    with Progress(console) as progress:
        for event in events:
            progress.on_event(event)
    return text(console).splitlines()


def test_what_moves_stands_below_the_lines_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)

    def written(console: Console) -> str:
        with follow(console, FakeClock()) as progress:
            for event in in_canary():
                progress.on_event(event)
        return text(console)

    lines = "\n".join(plain_lines(in_canary()))
    assert written(Console(file=StringIO(), width=80)) == f"{lines}\n"
    moving = written(Console(file=StringIO(), force_terminal=True, width=80, height=30, color_system=None))
    assert "██████░░" in moving
    assert all(line in moving for line in lines.splitlines())
    monkeypatch.setenv("CI", "true")
    assert written(Console(file=StringIO(), force_terminal=True, width=80, color_system=None)) == f"{lines}\n"


def test_a_gate_that_keeps_running_is_told_every_ten_seconds_at_most() -> None:
    delivery = Delivery().open()
    for seen in range(21):
        delivery.verdict("shadow@eu-west-1", "errors", "running", f"{seen} requests", after=1)
    assert len([line for line in plain_lines(delivery.events) if "errors running" in line]) == 3


def test_what_did_not_change_is_told_once() -> None:
    delivery = Delivery().open()
    for _ in range(6):
        delivery.verdict("shadow@eu-west-1", "errors", "running", "24 of 50 requests", after=20)
    delivery.verdict("shadow@eu-west-1", "errors", "running", "31 of 50 requests", after=20)
    assert [line.split(": ", 1)[1] for line in plain_lines(delivery.events)[1:]] == [
        "errors running: 24 of 50 requests",
        "errors running: 31 of 50 requests",
    ]


def test_quiet_shows_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    with settings() as chosen:
        chosen.quiet = True
        with follow(PlainConsole(stderr=True), FakeClock()) as progress:
            for event in bad_answers():
                progress.on_event(event)
    assert capsys.readouterr() == ("", "")


HOSTILE = (
    "promote was refused by ann: see [/ticket] 42 [link=https://evil.example]x[/link] :skull: \x1b]0;owned\x07\x1b[2J"
)


def refused_with(reason: str) -> list[Event]:
    delivery = Delivery("[/v]", champion="[b]2").open()
    delivery.prepare("eu-west-1").say("canary@eu-west-1/25", "started")
    delivery.verdict("canary@eu-west-1/25", "latency", "fail", reason)
    delivery.say("delivery", "closed", reason, outcome="rolled-back", reason=reason)
    return delivery.events


def test_they_steer_neither_what_moves_nor_lines() -> None:
    console = PlainConsole(file=StringIO(), width=300)
    story = state_of(refused_with(HOSTILE)[:-1])
    console.print(at_work(story, START))
    with Progress(console) as progress:
        for event in refused_with(f"{HOSTILE}\n::warning::from CI"):
            progress.on_event(event)
    assert "see [/ticket] 42 [link=https://evil.example]x[/link] :skull: ]0;owned[2J" in text(console)
    assert not {"\x1b", "\x07"} & set(text(console))
    assert not any(line.startswith("::") for line in text(console).splitlines())
