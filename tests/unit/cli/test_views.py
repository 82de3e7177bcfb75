"""What people and CI systems see of a delivery and of its plan, word for word: `tests/golden/views/STORY.VIEW` has it.

After an intended change: `TIDEGATE_REGENERATE=1 pytest tests/unit/cli/test_views.py`; read the diff.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from fakes.delivery.records import Delivery, bad_answers, delivered, in_canary, interrupted, slow
from fakes.delivery.world import CHALLENGER, CHAMPION, a_spec, a_version
from fakes.golden import is_golden
from rich.console import Console

from pipelines.events.state import state_of
from pipelines.model import Plan
from pipelines.plan.planner import make_plan
from pipelines.views.ci import delivery_junit, delivery_markdown
from registry.model import Event
from tidegate.cli.views.delivery import Progress, at_work, summary
from tidegate.cli.views.plan import plan_comment, plan_lines

GOLDEN = Path(__file__).parents[2] / "golden/views"


def failed() -> list[Event]:
    """Something outside ends it; no gate has decided."""
    delivery = Delivery("6").open().pass_through("build", 5).say("deploy@eu-west-1", "started")
    return delivery.close("failed", "the registry is gone: no [bold]answer[/bold]", 4).events


def undecided() -> list[Event]:
    """A gate without numbers has the last word."""
    delivery = Delivery("7").open().verdict("shadow@eu-west-1", "errors", "inconclusive", "too few requests")
    return delivery.close("inconclusive", "", 3).events


STORIES = {"on_its_way": in_canary} | {
    story.__name__: story for story in (delivered, slow, failed, bad_answers, interrupted, undecided)
}


def progress(events: Sequence[Event]) -> str:
    console = Console(file=StringIO(), width=80)
    with Progress(console) as lines:
        for event in events:
            lines.on_event(event)
    return _text(console)


def terminal(events: Sequence[Event]) -> str:
    """What moves, five seconds later, or what is left to say at the end."""
    console, story = Console(file=StringIO(), width=80), state_of(events)
    if story.outcome is None:
        console.print(at_work(story, events[-1].at + timedelta(seconds=5)))
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
CASES = [
    (story, view)
    for story in STORIES
    for view in VIEWS
    if view != "junit.xml" or story in ("delivered", "slow", "failed")
]


@pytest.mark.parametrize(("story", "view"), CASES)
def test_a_delivery_looks_like_this(story: str, view: str) -> None:
    is_golden(VIEWS[view](STORIES[story]()), GOLDEN / f"{story}.{view}")


def planned(**changes: str) -> Plan:
    return make_plan(a_spec(**changes), a_version(CHALLENGER), a_version(CHAMPION), prompts=12)


ASKS = "approvals: [{before: finalize}]\ntraffic: {requests_per_second: 200}"
PLANS: dict[str, Callable[[], str]] = {
    "plan.txt": lambda: "\n".join(plan_lines(planned(traffic=ASKS))),
    # Nobody says how many users there are: no time is guessed.
    "plan_unknown.txt": lambda: "\n".join(
        plan_lines(planned(regions="regions: {waves: [[eu-west-1]], bake: 90s}", traffic=""))
    ),
    "plan.md": lambda: plan_comment("llm/delivery.yaml", *plan_lines(planned(traffic=ASKS)), "eu-west-1: 2 engines"),
    "plan_refused.md": lambda: plan_comment("llm/delivery.yaml", "No plan for llm/delivery.yaml", "a", "`b` | c"),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_looks_like_this(name: str) -> None:
    is_golden(PLANS[name](), GOLDEN / name)
