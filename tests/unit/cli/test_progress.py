"""A delivery on the screen: live on a terminal, plain lines everywhere else."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO

import pytest
from fakes.delivery.records import Delivery, bad_answers, in_canary
from rich.console import Console

from pipelines.events.state import state_of
from registry.model import Event
from tidegate.cli.settings import settings
from tidegate.cli.views.delivery import LiveProgress, PlainConsole, PlainProgress, follow, screen, visible
from tidegate.testing import FakeClock


def terminal(width: int = 80) -> Console:
    return Console(file=StringIO(), force_terminal=True, width=width, height=30, color_system="truecolor")


def text(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def plain_lines(events: list[Event]) -> list[str]:
    console = Console(file=StringIO(), width=80)
    with PlainProgress(console) as progress:
        for event in events:
            progress.on_event(event)
    return text(console).splitlines()


def shown(events: list[Event], *, width: int = 80, rows: int = 30, later: float = 0) -> str:
    console = Console(file=StringIO(), width=width)
    console.print(screen(state_of(events), events[-1].at + timedelta(seconds=later), rows=rows))
    return text(console)


def test_a_terminal_gets_the_live_view_and_a_file_plain_lines() -> None:
    assert isinstance(follow(terminal(), FakeClock(), {}), LiveProgress)
    assert isinstance(follow(Console(file=StringIO()), FakeClock(), {}), PlainProgress)
    assert isinstance(follow(terminal(), FakeClock(), {"CI": "true"}), PlainProgress)


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
        with follow(PlainConsole(stderr=True), FakeClock(), {}) as progress:
            for event in bad_answers():
                progress.on_event(event)
    assert capsys.readouterr() == ("", "")


def test_while_a_delivery_runs_the_screen_fits_the_terminal() -> None:
    assert len(shown(in_canary(), rows=24).splitlines()) <= 24


def test_the_steps_around_the_running_one_stay_in_sight() -> None:
    story = state_of(in_canary())
    first, last = visible(story.steps, 8)
    running = next(index for index, step in enumerate(story.steps) if step.id == "canary@eu-west-1/25")
    assert first < running < last
    assert last - first == 6


def test_two_regions_at_work_are_both_in_sight() -> None:
    delivery = Delivery().open().pass_through("build", 5).say("deploy@eu-west-1", "started")
    story = state_of(delivery.say("deploy@us-east-1", "started").events)
    first, last = visible(story.steps, 14)
    at_work = [step.id for step in story.steps[first:last] if step.started and not step.ended]
    assert at_work == ["deploy@eu-west-1", "deploy@us-east-1"]


HOSTILE = (
    "promote was refused by ann: see [/ticket] 42 [link=https://evil.example]x[/link] :skull: \x1b]0;owned\x07\x1b[2J"
)


def refused_with(reason: str) -> list[Event]:
    delivery = Delivery("[/v]", champion="[b]2").open()
    delivery.prepare("eu-west-1").say("canary@eu-west-1/25", "started")
    delivery.verdict("canary@eu-west-1/25", "latency", "fail", reason)
    delivery.say("delivery", "closed", reason, outcome="rolled-back", reason=reason)
    return delivery.events


def test_they_neither_steer_the_live_display_nor_plain_lines() -> None:
    console = PlainConsole(file=StringIO(), width=300)
    console.print(screen(state_of(refused_with(HOSTILE)), refused_with(HOSTILE)[-1].at, rows=40))
    assert "see [/ticket] 42 [link=https://evil.example]x[/link] :skull: ]0;owned[2J" in text(console)
    with PlainProgress(console) as progress:
        for event in refused_with(f"{HOSTILE}\n::warning::from CI"):
            progress.on_event(event)
    assert not {"\x1b", "\x07"} & set(text(console))
    assert not any(line.startswith("::") for line in text(console).splitlines())
