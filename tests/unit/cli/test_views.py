"""What people and CI systems see of a delivery, word for word: `tests/golden/views/STORY.VIEW` has it.

After an intended change: `TIDEGATE_REGENERATE=1 pytest tests/unit/cli/test_views.py`; read the diff.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from fakes.delivery.records import Delivery, bad_answers, delivered, interrupted, slow
from rich.console import Console

from pipelines.events.state import state_of
from pipelines.views.ci import delivery_junit, delivery_markdown
from registry.model import Event
from tidegate.cli.views.delivery import PlainProgress, screen, summary

GOLDEN = Path(__file__).parents[2] / "golden/views"


def on_its_way() -> list[Event]:
    """A quarter of one region's users are on the canary."""
    delivery = Delivery("3", champion="2").open()
    delivery.prepare("eu-west-1").offline(canary=0.92).shadow("eu-west-1")
    delivery.say("canary@eu-west-1/25", "started").traffic("canary@eu-west-1/25", weight=25)
    numbers = {"ttft_p95_canary_seconds": 0.104, "ttft_p95_stable_seconds": 0.098}
    return delivery.verdict("canary@eu-west-1/25", "latency", "running", "24 of 50 requests", after=7, **numbers).events


def failed() -> list[Event]:
    """Something outside ends it; no gate has decided."""
    delivery = Delivery("6").open().pass_through("build", 5).say("deploy@eu-west-1", "started")
    return delivery.close("failed", "the registry is gone: no [bold]answer[/bold]", 4).events


def undecided() -> list[Event]:
    """A gate without numbers has the last word."""
    delivery = Delivery("7").open().verdict("shadow@eu-west-1", "errors", "inconclusive", "too few requests")
    return delivery.close("inconclusive", "", 3).events


STORIES = (delivered, slow, failed, bad_answers, interrupted, on_its_way, undecided)


def progress(events: Sequence[Event]) -> str:
    console = Console(file=StringIO(), width=80)
    with PlainProgress(console) as lines:
        for event in events:
            lines.on_event(event)
    return _text(console)


def terminal(events: Sequence[Event]) -> str:
    """The last frame, five seconds later, and the summary below it."""
    console, story = Console(file=StringIO(), width=80), state_of(events)
    console.print(screen(story, events[-1].at + timedelta(seconds=5), rows=24))
    return _text(console) + "".join(f"{line}\n" for line in summary(story))


def page(events: Sequence[Event]) -> str:
    return delivery_markdown(state_of(events), "0f3c", events[-1].at + timedelta(hours=1))


def junit(events: Sequence[Event]) -> str:
    return delivery_junit(state_of(events), "0f3c", events[-1].at + timedelta(hours=1))


def _text(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())


VIEWS: dict[str, Callable[[Sequence[Event]], str]] = {
    "progress.txt": progress,
    "terminal.txt": terminal,
    "page.md": page,
    "junit.xml": junit,
}


CASES = [(story, view) for story in STORIES for view in VIEWS if view != "junit.xml" or story in STORIES[:3]]


@pytest.mark.parametrize(("story", "view"), CASES, ids=lambda part: getattr(part, "__name__", part))
def test_a_delivery_looks_like_this(story: Callable[[], list[Event]], view: str) -> None:
    shown = VIEWS[view](story())
    expected = GOLDEN / f"{story.__name__}.{view}"
    if "TIDEGATE_REGENERATE" in os.environ:
        assert "CI" not in os.environ, "what CI compares with is written by people"
        expected.write_text(shown)
    assert shown == expected.read_text()
