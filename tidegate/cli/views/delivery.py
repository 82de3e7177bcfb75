"""A delivery while it happens: a line for each event, on a terminal with what moves below; a summary at its end."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, Self

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from gates.model import GateOutcome
from pipelines.events.listeners import DeliveryDisplay
from pipelines.events.payloads import StepProgress, VerdictPayload
from pipelines.events.state import DeliveryState, RegionTraffic, seconds_left
from pipelines.views.wording import facts, headline, shares, stopwatch
from registry.model import Event, EventKind
from tidegate.cli.settings import given
from tidegate.core.clock import Clock
from tidegate.core.text import aligned, one_line, printable
from tidegate.core.units import duration


class PlainConsole(Console):
    """Shows words of others as they are: brackets are no markup, colons no emoji, and nothing steers the terminal."""

    def __init__(self, **more: Any) -> None:
        # What goes to stderr by a console is progress; results go to stdout.
        quiet = bool(more.get("stderr")) and given().quiet
        super().__init__(quiet=quiet, markup=False, emoji=False, highlight=False, **more)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def follow(console: Console, clock: Clock, *, plain: bool = False) -> DeliveryDisplay:
    """The display of a delivery; what moves is left out in CI, pipes and files, and when `plain`."""
    # Many CI systems offer a terminal and keep every frame of what moves on it.
    live = console.is_terminal and not console.is_dumb_terminal and not (plain or os.environ.get("CI"))
    return Progress(console, clock if live else None)


REFRESHES_PER_SECOND = 4
"""Enough for a clock that moves; a slow terminal over a network keeps up."""
QUIET = timedelta(seconds=10)
"""A gate that is still running, or a step's count, is repeated no more often than this."""
BAR_CELLS = 24
"""Width of a region's bar, in characters."""


class Progress(DeliveryDisplay):
    """One line per event that matters, with its time since the delivery started; below them what moves."""

    def __init__(self, console: Console, clock: Clock | None = None) -> None:
        """Lines go to `console`, without colours and without wrapping; with a `clock` it is a person's terminal."""
        super().__init__()
        self._console = console
        self._last: dict[tuple[str, str], tuple[GateOutcome | None, datetime, str]] = {}
        self._live = clock and Live(
            console=console,
            get_renderable=lambda: at_work(self.story, clock.now()) if self.story.started else Text(),
            refresh_per_second=REFRESHES_PER_SECOND,
            transient=True,
        )

    def __enter__(self) -> Self:
        if self._live:
            self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def on_event(self, event: Event) -> None:
        before = self.story
        super().on_event(event)
        subject, outcome, text = _told(event, before, self.story)
        if text and self._is_news((event.step, subject), outcome, event.at, text):
            elapsed = stopwatch(self.story.elapsed_seconds(event.at))
            self._console.print(f"{elapsed:>7}  {one_line(text)}", highlight=False, markup=False, soft_wrap=True)

    def _is_news(self, key: tuple[str, str], outcome: GateOutcome | None, at: datetime, text: str) -> bool:
        """Whether the last line of the same step and gate was another; of a count and a gate that runs, only rarely."""
        last = self._last.get(key)
        news = last is None or last[0] is not outcome
        if not news and last and text != last[2]:
            news = not key[1] or (outcome in (None, GateOutcome.RUNNING) and at - last[1] >= QUIET)
        if news:
            self._last[key] = (outcome, at, text)
        return news


def _told(event: Event, before: DeliveryState, story: DeliveryState) -> tuple[str, GateOutcome | None, str]:
    """What an event is about, besides its step, how that stands, and what to say."""
    subject, outcome, said = "", None, event.message
    match event.kind:
        case EventKind.TRAFFIC:
            changed = [region for region in story.regions if region not in before.regions]
            return "", None, "; ".join(f"{region.name}: {shares(region, story)}" for region in changed)
        case _ if event.step == "delivery":
            return "", None, _delivery_line(event, story)
        case EventKind.VERDICT:
            verdict = VerdictPayload.of(event)
            subject, outcome = f"{verdict.gate}@{verdict.region}", verdict.outcome
            # Upper case, so that an eye that runs over a CI log stops there.
            word = str(outcome) if outcome <= GateOutcome.RUNNING else str(outcome).upper()
            said = f"{verdict.gate} {word}: {verdict.reason or said}"
        case EventKind.EVIDENCE:
            count = StepProgress.of(event)
            subject, said = "progress", f"{count.done} of {count.total}, {said}" if count.total else said
        case EventKind.FAILED:
            said = f"FAILED: {said}"
        case _:
            step = story.step(event.step)
            took = f" in {duration(step.seconds(event.at))}" if step and event.kind == "done" else ""
            expected = step.expected_seconds if step and event.kind == "started" else 0
            left = f", about {duration(expected)}" if expected else ""
            said = f"{event.kind}{took}{left}" + (f", {said}" if said else "")
    return subject, outcome, f"{event.step}: {said}"


def _delivery_line(event: Event, story: DeliveryState) -> str:
    if event.kind == "closed":
        return f"{story.model} {story.version}: {story.outcome}: {story.reason}"
    if event.kind != "started":
        return event.message
    left = seconds_left(story, event.at)
    expected = f", {len(story.steps)} steps, about {duration(left)}" if left else ""
    against = f" against champion {story.champion}" if story.champion else ""
    return f"{story.model} {story.version}{against}{expected}"


def at_work(story: DeliveryState, now: datetime) -> Group:
    """What moves: the delivery's time, the steps that run, and how the users of each region are shared out."""
    clock = stopwatch(story.elapsed_seconds(now))
    if (left := seconds_left(story, now)) is not None:
        clock += f"  about {stopwatch(left)} left"
    head = Table.grid(Column(ratio=1), Column(justify="right", no_wrap=True), expand=True, padding=(0, 2))
    head.add_row(Text(headline(story), style="bold"), Text(clock, style="dim"))
    rows = Table.grid(*(Column(no_wrap=True) for _ in range(3)), padding=(0, 1))
    for step in story.steps:
        if step.is_at_work:
            said = f"{step.progress[0]} of {step.progress[1]}  {step.message}" if step.progress else step.message
            rows.add_row(Text(step.id, "bold"), Text(stopwatch(step.seconds(now))), Text(said, "dim"))
    for region in story.regions:
        rows.add_row(Text(region.name), _bar(region), Text(shares(region, story)))
    return Group(Rule(style="dim"), head, rows)


def _bar(region: RegionTraffic) -> Text:
    """Filled from the left with the version being delivered; never empty or full unless it truly is."""
    cells = round(region.weight / 100 * BAR_CELLS)
    # 1 % must be seen.
    if 0 < region.weight < 100:
        cells = min(max(cells, 1), BAR_CELLS - 1)
    return Text.assemble(("█" * cells, "cyan"), ("░" * (BAR_CELLS - cells), "dim"))


def summary(story: DeliveryState) -> Iterator[str]:
    """What is left to say at the end: version, outcome, what decided, how long it took."""
    return aligned(list(facts(story).items()))
