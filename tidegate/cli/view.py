"""A story as rich renderables: what the live display and the summary are made of. Pure, no console needed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from gates.model import Outcome
from pipelines.forecast import seconds_left
from pipelines.story import Gate, Region, Step, StepState, Story
from pipelines.wording import decision, duration, headline, key_numbers, shares, stopwatch

MARKS = {
    StepState.WAITING: ("·", "dim"),
    StepState.RUNNING: ("▸", "bold cyan"),
    StepState.DONE: ("✓", "green"),
    StepState.FAILED: ("✗", "bold red"),
    StepState.SKIPPED: ("-", "dim"),
    StepState.UNDONE: ("↩", "yellow"),
}
VERDICTS = {
    Outcome.PASS: ("✓", "green"),
    Outcome.RUNNING: ("…", "cyan"),
    Outcome.INCONCLUSIVE: ("?", "yellow"),
    Outcome.ERROR: ("!", "bold red"),
    Outcome.FAIL: ("✗", "bold red"),
}
BAR_CELLS = 24
"""Width of a region's bar, in characters."""

GATE_ROWS = 6
"""Verdicts on screen at most: those of the steps at work, the latest last."""

FRAME_ROWS = 5
"""Lines of the display that are neither steps, regions nor verdicts."""


def screen(story: Story, now: datetime, *, rows: int) -> Group:
    """The whole display, in at most `rows` lines while the delivery runs, in full once it is over."""
    gates = _gates_at_work(story)
    room = max(rows - FRAME_ROWS - len(story.regions) - len(gates), 4)
    parts: list[RenderableType] = [_header(story, now), Rule(style="dim"), _steps(story, now, room)]
    if story.regions:
        parts += [Text(), _regions(story)]
    if gates:
        parts += [Text(), _gates(gates)]
    return Group(*parts)


def summary(story: Story) -> Table:
    """What is left to say at the end: version, outcome, what decided, how long it took."""
    style = "green" if story.outcome == "delivered" else "red"
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    against = f", champion {story.champion}" if story.champion else ""
    table.add_row("version", Text(f"{story.model} {story.version}{against}"))
    table.add_row("outcome", Text(story.outcome or "running", style=f"bold {style}"))
    table.add_row("decided by", Text(_decided_by(story)))
    table.add_row("took", duration(story.elapsed_seconds(story.ended or story.started)) if story.started else "-")
    return table


def _decided_by(story: Story) -> str:
    gate = story.deciding
    return f"{decision(story)}, in {gate.step}" if gate else story.reason


def _header(story: Story, now: datetime) -> Table:
    left = seconds_left(story, now)
    clock = stopwatch(story.elapsed_seconds(now))
    moving = f"{clock}  about {stopwatch(left)} left" if left is not None else clock
    title = Text(headline(story), style=_tone(story))
    if story.champion and story.outcome is None:
        title.append(f", champion is {story.champion}", style="not bold dim")
    table = Table.grid(expand=True, padding=(0, 2))
    table.add_column(ratio=1)
    table.add_column(justify="right", no_wrap=True)
    table.add_row(title, Text(moving, style="dim"))
    return table


def _tone(story: Story) -> str:
    if story.outcome is None:
        return "bold"
    return "bold green" if story.outcome == "delivered" else "bold red"


def _steps(story: Story, now: datetime, room: int) -> Table:
    table = Table.grid(padding=(0, 1), expand=True)
    for _ in range(3):
        table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(no_wrap=True, overflow="ellipsis", style="dim", ratio=1)
    # It stays on the terminal for good: then in full.
    if story.outcome:
        return _ended(story, now, table)
    first, last = visible(story.steps, room)
    if first:
        took = sum(step.seconds(now) for step in story.steps[:first])
        table.add_row(
            Text("✓", "green"),
            Text("1 step" if first == 1 else f"{first} steps", "dim"),
            "",
            Text(duration(took), "dim"),
            "",
        )
    for step in story.steps[first:last]:
        table.add_row(*_step_cells(step, now))
    if last < len(story.steps):
        table.add_row(Text("·", "dim"), Text(f"{len(story.steps) - last} more", "dim"), "", "", "")
    return table


def _ended(story: Story, now: datetime, table: Table) -> Table:
    """Every step that was begun; those that never were are one line."""
    for step in story.steps:
        if step.state is not StepState.SKIPPED:
            table.add_row(*_step_cells(step, now))
    skipped = sum(step.state is StepState.SKIPPED for step in story.steps)
    if skipped:
        table.add_row(Text("-", "dim"), Text(f"{skipped} skipped", "dim"), "", "", "")
    return table


def visible(steps: Sequence[Step], room: int) -> tuple[int, int]:
    """Which steps to show when not all fit in `room` lines: the first running one near the top, then what follows."""
    if len(steps) <= room:
        return 0, len(steps)
    shown = room - 2
    running = [index for index, step in enumerate(steps) if step.state is StepState.RUNNING]
    begun = [index for index, step in enumerate(steps) if step.started]
    anchor = running[0] if running else max(begun, default=0)
    first = min(max(anchor - shown // 3, 0), len(steps) - shown)
    return first, first + shown


def _step_cells(step: Step, now: datetime) -> tuple[Text, Text, Text, Text, Text]:
    mark, style = MARKS[step.state]
    name = f"{step.stage} {step.weight}%" if step.weight is not None else step.stage
    quiet = "dim" if step.state in (StepState.WAITING, StepState.SKIPPED) else ""
    return (
        Text(mark, style),
        Text(name, "bold" if step.state is StepState.RUNNING else quiet),
        Text(step.id.partition("@")[2].partition("/")[0], quiet),
        Text(_time(step, now), quiet),
        Text(_detail(step)),
    )


def _time(step: Step, now: datetime) -> str:
    if step.state is StepState.RUNNING:
        return stopwatch(step.seconds(now))
    if step.started:
        return duration(step.seconds(now))
    known = step.state is StepState.WAITING and step.expected_seconds
    return f"~{duration(step.expected_seconds)}" if known else ""


def _detail(step: Step) -> str:
    if step.state is StepState.RUNNING and step.progress:
        return f"{step.progress[0]} of {step.progress[1]}  {step.message}"
    return "" if step.state in (StepState.WAITING, StepState.SKIPPED) else step.message


def _regions(story: Story) -> Table:
    table = Table.grid(padding=(0, 1))
    for _ in range(3):
        table.add_column(no_wrap=True)
    for region in story.regions:
        table.add_row(Text(f"  {region.name}"), _bar(region), Text(shares(region, story)))
    return table


def _bar(region: Region) -> Text:
    """Filled from the left with the version being delivered; never empty or full unless it truly is."""
    cells = round(region.weight / 100 * BAR_CELLS)
    # 1 % must be seen.
    if 0 < region.weight < 100:
        cells = min(max(cells, 1), BAR_CELLS - 1)
    return Text.assemble(("█" * cells, "cyan"), ("░" * (BAR_CELLS - cells), "dim"))


def _gates_at_work(story: Story) -> list[Gate]:
    """The gates of the steps at work, or else of the last step that had any."""
    running = {step.id for step in story.steps if step.state is StepState.RUNNING}
    chosen = [gate for gate in story.gates if gate.step in running]
    if not chosen and story.gates:
        chosen = [gate for gate in story.gates if gate.step == story.gates[-1].step]
    return chosen[-GATE_ROWS:]


def _gates(gates: Sequence[Gate]) -> RenderableType:
    table = Table.grid(padding=(0, 1), expand=True)
    for _ in range(4):
        table.add_column(no_wrap=True)
    table.add_column(overflow="ellipsis", no_wrap=True, ratio=1)
    for gate in gates:
        mark, style = VERDICTS[gate.latest.outcome]
        place = gate.step.partition("@")[2] if gate.region else gate.step
        reason = " · ".join(part for part in (key_numbers(gate), gate.latest.reason) if part)
        outcome = Text(str(gate.latest.outcome), style)
        table.add_row(Text(mark, style), Text(gate.name), Text(place, "dim"), outcome, Text(reason))
    return Padding(table, (0, 0, 0, 2))
