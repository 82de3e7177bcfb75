"""A delivery as a section of HTML, the same in the report and on the live page."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from pipelines.events.state import DeliveryState, StepState, StepStatus
from pipelines.views import timeline as figure
from pipelines.views.wording import (
    STEP_MARKS,
    at_the_end,
    facts,
    gate_row,
    headline,
    moment,
    people,
    tone,
)
from tidegate.core.units import duration

HELD_MARK = "‖"

TEMPLATES = Environment(
    loader=PackageLoader("pipelines.views", "templates"),
    autoescape=True,  # what anybody wrote into the ledger is text
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def asset(name: str) -> str:
    """A style sheet or script that lies beside the templates."""
    return resources.files("pipelines.views").joinpath("templates", name).read_text(encoding="utf-8")


def section(name: str, delivery: str, story: DeliveryState) -> dict[str, Any]:
    """What the template shows; `name` keeps its ids apart from those of others on the page."""
    return {
        "name": name,
        "headline": headline(story),
        "tone": tone(story),
        "outcome": story.outcome or "running",
        "version": story.version,
        "facts": _facts(delivery, story),
        "figure": figure.timeline(story) if story.started else None,
        "steps": [_step(step, story) for step in story.steps if step.state is not StepStatus.SKIPPED],
        "skipped": sum(step.state is StepStatus.SKIPPED for step in story.steps),
        "at_work": next((step.id for step in story.steps if step.is_at_work), ""),
        "done": sum(step.state is StepStatus.DONE for step in story.steps),
    }


def _facts(delivery: str, story: DeliveryState) -> dict[str, str]:
    regions = "; ".join(f"{region.name}: {at_the_end(region, story)}" for region in story.regions)
    told = {
        **facts(story, figure.last_moment(story)),
        "began": moment(story.started) if story.started else "never",
        **({"regions": regions} if regions else {}),
        **people(story),
        "delivery": delivery,
    }
    return {name.capitalize(): value for name, value in told.items()}


def _step(step: StepState, story: DeliveryState) -> Mapping[str, Any]:
    when = ""
    if step.started:
        ended = step.ended or story.ended
        when = duration(step.seconds(ended)) if ended else f"since {step.started:%H:%M:%S} UTC"
    return {
        "id": step.id,
        "state": "held" if step.is_held else str(step.state),
        "mark": HELD_MARK if step.is_held else STEP_MARKS[step.state],
        "when": when,
        "progress": step.progress if step.state is StepStatus.RUNNING else None,
        "message": step.message,
        "gates": [gate_row(gate) for gate in story.gates if gate.step == step.id],
    }


def ticked(text: str) -> Markup:
    """The text with what stands between backticks as code; everything in it is escaped."""
    pieces = text.split("`")
    # An odd one out is a backtick that nobody closed.
    last = pieces.pop() if len(pieces) % 2 == 0 else None
    told = Markup().join(
        Markup("<code>{}</code>").format(each) if at % 2 else escape(each) for at, each in enumerate(pieces)
    )
    return told if last is None else told + "`" + last


TEMPLATES.filters |= {"ticked": ticked, "moment": moment}
