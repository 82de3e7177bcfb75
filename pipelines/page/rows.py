"""What the template shows of each delivery and each wish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup, escape

from pipelines.page.model import Seen, View
from pipelines.page.weights import chart
from pipelines.report.rows import STEP_MARKS, gate_row, tone
from pipelines.report.timeline import touched
from pipelines.story import Gate, Region, Step, StepState, Story
from pipelines.wording import decision, duration, headline, moment, people, shares, stopwatch
from registry.liveness import why_dead

HELD_MARK = "‖"


def news(view: View) -> str:
    """The one sentence that is read out when it changes."""
    if view.look is None:
        return ""
    newest = view.newest
    if newest is None:
        return f"{view.model} has not been delivered yet."
    if newest.over or not newest.alive or newest.story is None:
        return f"Nothing is being delivered. The last: {_headline(newest)}."
    at_work = filter(_is_at_work, newest.story.steps)
    doing = ", ".join(f"{step.id} is held" if _is_held(step) else step.id for step in at_work)
    return f"{view.model} {newest.summary.version} is on its way: {doing or 'between two steps'}."


def delivery(seen: Seen) -> dict[str, Any]:
    """One delivery, whole."""
    story, summary = seen.story or Story(), seen.summary
    dead = not seen.over and not seen.alive
    return {
        "id": summary.id,
        "version": summary.version,
        "headline": _headline(seen),
        "tone": "bad" if dead else tone(story) if seen.over else "at-work",
        "outcome": summary.outcome or ("died" if dead else "running"),
        "began": summary.started,
        "facts": _facts(seen, story),
        "unreadable": seen.story is None,
        "dead": f"{why_dead(summary)}." if dead else "",
        "regions": [_region(region, story) for region in story.regions if touched(region, story)],
        "steps": [_step(step, story) for step in story.steps if step.state is not StepState.SKIPPED],
        "skipped": sum(step.state is StepState.SKIPPED for step in story.steps),
        "at_work": "" if dead else next((step.id for step in story.steps if _is_at_work(step)), ""),
        "done": sum(step.state is StepState.DONE for step in story.steps),
    }


def elapsed(view: View) -> str:
    """How long the newest delivery runs by now; empty when none does."""
    newest = view.newest
    if newest is None or newest.over or not newest.alive:
        return ""
    return stopwatch(max((view.now - newest.summary.started).total_seconds(), 0))


def ticked(text: str) -> Markup:
    """The text with what stands between backticks as code; everything in it is escaped."""
    pieces = text.split("`")
    # An odd one out is a backtick that nobody closed.
    last = pieces.pop() if len(pieces) % 2 == 0 else None
    told = Markup().join(
        Markup("<code>{}</code>").format(each) if at % 2 else escape(each) for at, each in enumerate(pieces)
    )
    return told if last is None else told + "`" + last


def _headline(seen: Seen) -> str:
    name = f"{seen.summary.name} {seen.summary.version}"
    if not seen.over and not seen.alive:
        return f"{name} died at {seen.summary.last_step or 'its start'}"
    if seen.story is None or seen.story.started is None:
        return f"{name}: {seen.summary.outcome or 'on its way'}"
    return headline(seen.story)


def _facts(seen: Seen, story: Story) -> list[tuple[str, str]]:
    summary = seen.summary
    facts = [
        ("Version", f"{summary.name} {summary.version}"),
        ("Champion", summary.champion or "none"),
        ("Began", moment(summary.started)),
        *people(story),
    ]
    if summary.ended is not None:
        facts += [
            ("Took", duration(max((summary.ended - summary.started).total_seconds(), 0))),
            ("Outcome", summary.outcome or "none"),
            ("Decided by", decision(story) or summary.reason or "nothing was written down"),
        ]
    return facts


def _region(region: Region, story: Story) -> dict[str, Any]:
    return {"name": region.name, "shares": shares(region, story), "chart": chart(region, story)}


def _step(step: Step, story: Story) -> dict[str, Any]:
    held = _is_held(step)
    return {
        "id": step.id,
        "state": "held" if held else str(step.state),
        "mark": HELD_MARK if held else STEP_MARKS[step.state],
        "when": _when(step),
        "progress": step.progress if step.state is StepState.RUNNING else None,
        "message": step.message,
        "gates": [gate_row(gate) for gate in _gates(step, story.gates)],
    }


def _is_at_work(step: Step) -> bool:
    return step.state is StepState.RUNNING or _is_held(step)


def _is_held(step: Step) -> bool:
    """Whether it waits for people or for the end of a freeze: only then a step that has not begun has a message."""
    return step.state is StepState.WAITING and bool(step.message)


def _when(step: Step) -> str:
    if step.started is None:
        return ""
    return duration(step.seconds(step.ended)) if step.ended else f"since {step.started:%H:%M:%S} UTC"


def _gates(step: Step, gates: Sequence[Gate]) -> list[Gate]:
    return [gate for gate in gates if gate.step == step.id]
