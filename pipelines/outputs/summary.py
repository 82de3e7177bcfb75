"""A delivery as Markdown: what decided, then every gate and every step, folded. GitHub and GitLab show it alike."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from gates.model import Outcome
from pipelines.outputs.wording import sentence
from pipelines.story import Gate, Step, StepState, Story
from pipelines.wording import at_the_end, decision, duration, key_numbers
from tidegate.core.markdown import table_cell

GATES_SHOWN = 200
"""A page of CI holds a megabyte, and a delivery to many regions has thousands of verdicts. What says no comes first."""


def delivery_markdown(story: Story, delivery: str, now: datetime) -> str:
    """The whole summary, with a line end."""
    parts = [_head(story, delivery, now), _regions(story), _gates(story), _steps(story, now)]
    return "\n\n".join("\n".join(part) for part in map(list, parts) if part) + "\n"


def _head(story: Story, delivery: str, now: datetime) -> Iterator[str]:
    yield f"### {table_cell(sentence(story))}"
    yield ""
    yield "| | |"
    yield "|---|---|"
    if story.started:
        against = f", champion {table_cell(story.champion)}" if story.champion else ""
        yield f"| version | {table_cell(f'{story.model} {story.version}')}{against} |"
    yield f"| outcome | **{story.outcome or 'unknown'}** |"
    gate = story.deciding
    place = f", in {table_cell(gate.step)}" if gate else ""
    yield f"| decided by | {table_cell(decision(story))}{place} |"
    if story.started:
        yield f"| took | {duration(story.elapsed_seconds(now))} |"
    if delivery:
        yield f"| delivery | `{delivery}` |"


def _regions(story: Story) -> Iterator[str]:
    if any(region.history for region in story.regions):
        yield "| region | users |"
        yield "|---|---|"
        for region in story.regions:
            yield f"| {table_cell(region.name)} | {table_cell(at_the_end(region, story)) or '-'} |"


def _gates(story: Story) -> Iterator[str]:
    if not story.gates:
        return
    worst_first = sorted(story.gates, key=lambda gate: gate.latest.outcome <= Outcome.RUNNING)
    yield from _folded(f"{len(story.gates)} verdicts")
    yield "| gate | in | verdict | why |"
    yield "|---|---|---|---|"
    for gate in worst_first[:GATES_SHOWN]:
        yield f"| {table_cell(gate.name)} | {table_cell(gate.step)} | {_word(gate)} | {table_cell(_why(gate))} |"
    if len(worst_first) > GATES_SHOWN:
        yield f"| and {len(worst_first) - GATES_SHOWN} more | | | |"
    yield "\n</details>"


def _word(gate: Gate) -> str:
    outcome = gate.latest.outcome
    return str(outcome) if outcome <= Outcome.RUNNING else f"**{outcome}**"


def _why(gate: Gate) -> str:
    return "; ".join(part for part in (key_numbers(gate), gate.latest.reason) if part)


def _steps(story: Story, now: datetime) -> Iterator[str]:
    begun = [step for step in story.steps if step.started]
    if not begun:
        return
    yield from _folded(f"{len(begun)} of {len(story.steps)} steps")
    yield "| step | | took | |"
    yield "|---|---|---|---|"
    for step in begun:
        yield f"| {table_cell(step.id)} | {_state(step)} | {duration(step.seconds(now))} | {table_cell(step.message)} |"
    yield "\n</details>"


def _state(step: Step) -> str:
    return f"**{step.state}**" if step.state is StepState.FAILED else str(step.state)


def _folded(name: str) -> Iterator[str]:
    yield f"<details><summary>{name}</summary>"
    yield ""
