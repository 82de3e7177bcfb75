"""A delivery on a terminal: a live view while it happens, plain lines elsewhere, a summary at its end."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Self

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.rule import Rule
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from gates.model import GateOutcome
from pipelines.events.listeners import DeliveryDisplay
from pipelines.events.payloads import StepProgress, VerdictPayload
from pipelines.events.state import DeliveryState, GateState, RegionTraffic, StepState, StepStatus, seconds_left
from pipelines.views.wording import STEP_MARKS, VERDICT_MARKS, facts, headline, key_numbers, shares, stopwatch
from registry.model import Event, EventKind, StepId
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


def follow(
    console: Console, clock: Clock, environment: Mapping[str, str] = os.environ, *, plain: bool = False
) -> DeliveryDisplay:
    """The display that fits: live on a person's terminal, plain lines in CI, pipes and files, and when `plain`."""
    # Many CI systems offer a terminal and keep every frame of what moves on it.
    live = console.is_terminal and not console.is_dumb_terminal and not (plain or environment.get("CI"))
    return LiveProgress(console, clock) if live else PlainProgress(console)


REFRESHES_PER_SECOND = 4
"""Enough for a clock that moves; a slow terminal over a network keeps up."""
QUIET = timedelta(seconds=10)
"""Plain lines repeat a gate that is still running, or a step's count, no more often than this."""


class LiveProgress(DeliveryDisplay):
    """One view that stays in place and moves with the clock, also while no event comes."""

    def __init__(self, console: Console, clock: Clock) -> None:
        """Nothing is shown before the context is entered."""
        super().__init__()
        self._console = console
        self._clock = clock
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=REFRESHES_PER_SECOND)

    def _render(self) -> RenderableType:
        return screen(self.story, self._clock.now(), rows=self._console.height)

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()


class PlainProgress(DeliveryDisplay):
    """One line per event that matters, with its time since the delivery started."""

    def __init__(self, console: Console) -> None:
        """Lines go to `console`, without colours and without wrapping."""
        super().__init__()
        self._console = console
        self._last: dict[tuple[str, str], tuple[GateOutcome | None, datetime, str]] = {}

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


STEP_STYLES = {
    StepStatus.WAITING: "dim",
    StepStatus.RUNNING: "bold cyan",
    StepStatus.DONE: "green",
    StepStatus.FAILED: "bold red",
    StepStatus.SKIPPED: "dim",
    StepStatus.UNDONE: "yellow",
}
VERDICT_STYLES = {
    GateOutcome.PASS: "green",
    GateOutcome.RUNNING: "cyan",
    GateOutcome.INCONCLUSIVE: "yellow",
    GateOutcome.ERROR: "bold red",
    GateOutcome.FAIL: "bold red",
}
BAR_CELLS = 24
"""Width of a region's bar, in characters."""
GATE_ROWS = 6
"""Verdicts on screen at most: those of the steps at work, the latest last."""
FRAME_ROWS = 5
"""Lines of the display that are neither steps, regions nor verdicts."""


def summary(story: DeliveryState) -> Iterator[str]:
    """What is left to say at the end: version, outcome, what decided, how long it took."""
    return aligned(list(facts(story).items()))


def screen(story: DeliveryState, now: datetime, *, rows: int) -> Group:
    """The whole display, in at most `rows` lines while the delivery runs, in full once it is over."""
    gates = _gates_at_work(story)
    room = max(rows - FRAME_ROWS - len(story.regions) - len(gates), 4)
    parts: list[RenderableType] = [_header(story, now), Rule(style="dim"), _steps(story, now, room)]
    if story.regions:
        regions = _grid(3)
        for region in story.regions:
            regions.add_row(Text(f"  {region.name}"), _bar(region), Text(shares(region, story)))
        parts += [Text(), regions]
    if gates:
        parts += [Text(), Padding(_gates(gates), (0, 0, 0, 2))]
    return Group(*parts)


def _grid(cells: int, *, rest: bool = False) -> Table:
    """Cells next to each other in one line; with `rest` one more has what is left of its width, and is cut there."""
    columns = [Column(no_wrap=True) for _ in range(cells)]
    columns += [Column(no_wrap=True, overflow="ellipsis", ratio=1)] if rest else []
    return Table.grid(*columns, padding=(0, 1), expand=rest)


def _header(story: DeliveryState, now: datetime) -> Table:
    tone = "bold" if story.outcome is None else "bold green" if story.outcome == "delivered" else "bold red"
    title, clock = Text(headline(story), style=tone), stopwatch(story.elapsed_seconds(now))
    if story.champion and story.outcome is None:
        title.append(f", champion is {story.champion}", style="not bold dim")
    if (left := seconds_left(story, now)) is not None:
        clock += f"  about {stopwatch(left)} left"
    table = Table.grid(Column(ratio=1), Column(justify="right", no_wrap=True), expand=True, padding=(0, 2))
    table.add_row(title, Text(clock, style="dim"))
    return table


def _steps(story: DeliveryState, now: datetime, room: int) -> Table:
    table = _grid(4, rest=True)
    table.columns[3].justify = "right"
    if story.outcome:
        # It stays on the terminal for good: every step that was begun, and those that never were in one line.
        shown, mark, word = [step for step in story.steps if step.state is not StepStatus.SKIPPED], "-", "skipped"
        hidden = len(story.steps) - len(shown)
    else:
        first, last = visible(story.steps, room)
        shown, mark, word, hidden = list(story.steps[first:last]), "·", "more", len(story.steps) - last
        if first:
            took = sum(step.seconds(now) for step in story.steps[:first])
            done = "1 step" if first == 1 else f"{first} steps"
            table.add_row(Text("✓", "green"), Text(done, "dim"), "", Text(duration(took), "dim"), "")
    for step in shown:
        table.add_row(*_step_cells(step, now))
    if hidden:
        table.add_row(Text(mark, "dim"), Text(f"{hidden} {word}", "dim"), "", "", "")
    return table


def visible(steps: Sequence[StepState], room: int) -> tuple[int, int]:
    """Which steps to show when not all fit in `room` lines: the first running one near the top, then what follows."""
    if len(steps) <= room:
        return 0, len(steps)
    shown = room - 2
    running = [index for index, step in enumerate(steps) if step.state is StepStatus.RUNNING]
    begun = [index for index, step in enumerate(steps) if step.started]
    anchor = running[0] if running else max(begun, default=0)
    first = min(max(anchor - shown // 3, 0), len(steps) - shown)
    return first, first + shown


def _step_cells(step: StepState, now: datetime) -> tuple[Text, ...]:
    runs, quiet = step.state is StepStatus.RUNNING, step.state in (StepStatus.WAITING, StepStatus.SKIPPED)
    style, took, detail = "dim" if quiet else "", "", "" if quiet else step.message
    if runs:
        took = stopwatch(step.seconds(now))
        if step.progress:
            detail = f"{step.progress[0]} of {step.progress[1]}  {step.message}"
    elif step.started:
        took = duration(step.seconds(now))
    elif step.state is StepStatus.WAITING and step.expected_seconds:
        took = f"~{duration(step.expected_seconds)}"
    return (
        Text(STEP_MARKS[step.state], STEP_STYLES[step.state]),
        Text(step.name, "bold" if runs else style),
        Text(StepId.parsed(step.id).place, style),
        Text(took, style),
        Text(detail, "dim"),
    )


def _bar(region: RegionTraffic) -> Text:
    """Filled from the left with the version being delivered; never empty or full unless it truly is."""
    cells = round(region.weight / 100 * BAR_CELLS)
    # 1 % must be seen.
    if 0 < region.weight < 100:
        cells = min(max(cells, 1), BAR_CELLS - 1)
    return Text.assemble(("█" * cells, "cyan"), ("░" * (BAR_CELLS - cells), "dim"))


def _gates_at_work(story: DeliveryState) -> list[GateState]:
    """The gates of the steps at work, or else of the last step that had any."""
    running = {step.id for step in story.steps if step.state is StepStatus.RUNNING}
    chosen = [gate for gate in story.gates if gate.step in running]
    if not chosen and story.gates:
        chosen = [gate for gate in story.gates if gate.step == story.gates[-1].step]
    return chosen[-GATE_ROWS:]


def _gates(gates: Sequence[GateState]) -> Table:
    table = _grid(4, rest=True)
    for gate in gates:
        verdict = gate.latest
        style = VERDICT_STYLES[verdict.outcome]
        place = gate.step.removeprefix(f"{StepId.parsed(gate.step).stage}@") if gate.region else gate.step
        reason = " · ".join(part for part in (key_numbers(gate), verdict.reason) if part)
        words = (Text(gate.name), Text(place, "dim"), Text(str(verdict.outcome), style), Text(reason))
        table.add_row(Text(VERDICT_MARKS[verdict.outcome], style), *words)
    return table
