"""Shows a delivery while it happens: a live view on a terminal, plain lines everywhere else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, RenderableType
from rich.live import Live

from gates.model import Outcome
from pipelines.forecast import seconds_left
from pipelines.ports import Event
from pipelines.story import Story
from pipelines.wording import duration, shares, stopwatch
from tidegate.cli.view import screen
from tidegate.core.clock import Clock
from tidegate.core.plain_text import one_line

REFRESHES_PER_SECOND = 4
"""Enough for a clock that moves; a slow terminal over a network keeps up."""

QUIET = timedelta(seconds=10)
"""Plain lines repeat a gate that is still running, or a step's count, no more often than this."""


class Progress(Protocol):
    """Follows one delivery, event by event."""

    story: Story

    def on_event(self, event: Event) -> None:
        """Take the event in and show what it changed."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def follow(
    console: Console, clock: Clock, environment: Mapping[str, str] = os.environ, *, plain: bool = False
) -> Progress:
    """The display that fits: live on a person's terminal, plain lines in CI, pipes and files, and when `plain`."""
    # Many CI systems offer a terminal and keep every frame of what moves on it.
    live = console.is_terminal and not console.is_dumb_terminal and not (plain or environment.get("CI"))
    return LiveProgress(console, clock) if live else PlainProgress(console)


class LiveProgress:
    """One view that stays in place and moves with the clock, also while no event comes."""

    def __init__(self, console: Console, clock: Clock) -> None:
        """Nothing is shown before the context is entered."""
        self.story = Story()
        self._console = console
        self._clock = clock
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=REFRESHES_PER_SECOND)

    def on_event(self, event: Event) -> None:
        self.story = self.story.with_event(event)

    def _render(self) -> RenderableType:
        return screen(self.story, self._clock.now(), rows=self._console.height)

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()


class PlainProgress:
    """One line per event that matters, with its time since the delivery started."""

    def __init__(self, console: Console) -> None:
        """Lines go to `console`, without colours and without wrapping."""
        self.story = Story()
        self._console = console
        self._last: dict[tuple[str, str], tuple[Outcome | None, datetime]] = {}

    def on_event(self, event: Event) -> None:
        before, self.story = self.story, self.story.with_event(event)
        text = self._line(event, before)
        if text:
            elapsed = stopwatch(self.story.elapsed_seconds(event.at))
            self._console.print(f"{elapsed:>7}  {one_line(text)}", highlight=False, markup=False, soft_wrap=True)

    def _line(self, event: Event, before: Story) -> str:
        """What to say about the event; empty when it says nothing new."""
        if event.step == "delivery":
            return self._delivery(event)
        match event.kind:
            case "traffic":
                return _traffic(self.story, before)
            case "verdict":
                return self._verdict(event)
            case "evidence":
                return f"{event.step}: {_count(event)}" if self._due((event.step, ""), None, event.at) else ""
            case _:
                return self._step(event)

    def _step(self, event: Event) -> str:
        step = self.story.step(event.step)
        if event.kind == "failed":
            return f"{event.step}: FAILED: {event.message}"
        took = f" in {duration(step.seconds(event.at))}" if step and event.kind == "done" else ""
        return f"{event.step}: {event.kind}{took}" + (f", {event.message}" if event.message else "")

    def _delivery(self, event: Event) -> str:
        story = self.story
        if event.kind == "closed":
            return f"{story.model} {story.version}: {story.outcome}: {story.reason}"
        left = seconds_left(story, event.at)
        expected = f", {len(story.steps)} steps, about {duration(left)}" if left else ""
        against = f" against champion {story.champion}" if story.champion else ""
        return f"{story.model} {story.version}{against}{expected}" if event.kind == "started" else event.message

    def _verdict(self, event: Event) -> str:
        asked = (event.step, event.data["gate"], event.data.get("region"))
        gate = next(gate for gate in self.story.gates if (gate.step, gate.name, gate.region) == asked)
        if not self._due((event.step, gate.name), gate.latest.outcome, event.at):
            return ""
        outcome = str(gate.latest.outcome)
        # Upper case, so that an eye that runs over a CI log stops there.
        word = outcome if gate.latest.outcome <= Outcome.RUNNING else outcome.upper()
        return f"{event.step}: {gate.name} {word}: {gate.latest.reason}"

    def _due(self, key: tuple[str, str], outcome: Outcome | None, at: datetime) -> bool:
        """Whether this is news: a new outcome, or the same one after `QUIET`."""
        last = self._last.get(key)
        due = last is None or last[0] is not outcome or (at - last[1] >= QUIET and outcome in (None, Outcome.RUNNING))
        if due:
            self._last[key] = (outcome, at)
        return due

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


def _traffic(story: Story, before: Story) -> str:
    """The regions whose traffic changed, as their users are shared out now."""
    changed = [region for region in story.regions if region not in before.regions]
    return "; ".join(f"{region.name}: {shares(region, story)}" for region in changed)


def _count(event: Event) -> str:
    done, total = event.data.get("done"), event.data.get("total")
    return f"{done} of {total}, {event.message}" if total else event.message
