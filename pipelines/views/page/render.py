"""Puts a snapshot into HTML: the whole page, or the parts of it that change."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from importlib import resources
from itertools import pairwise
from typing import Any

from markupsafe import Markup, escape

from pipelines.events.state import DeliveryState, GateState, RegionTraffic, StepState, StepStatus
from pipelines.views.html import html_templates
from pipelines.views.page.snapshot import DeliverySnapshot, PageParts, PageView
from pipelines.views.report.timeline import length, seconds_into, touched
from pipelines.views.wording import (
    STEP_MARKS,
    decision,
    gate_row,
    headline,
    moment,
    people,
    shares,
    still_open,
    stopwatch,
    tone,
)
from registry.ownership import why_dead
from tidegate.core.model import Value
from tidegate.core.units import duration

WIDTH, HEIGHT = 1000, 100
"""Of the drawing, which is stretched to its place; one unit up is one percent."""


class Chart(Value):
    """What the drawing of one region consists of."""

    users: str
    """Percent of users on the version, as the line's path."""
    below: str
    """The area below that line."""
    mirrored: str
    """Percent that is mirrored, only where there is some; empty when there was none."""
    label: str
    """The same in words, for who cannot see it."""
    took: str
    """What the right edge stands for."""


def chart(region: RegionTraffic, story: DeliveryState) -> Chart:
    """From the start of the delivery to its end, or to the last that is known of it."""
    total = length(story)
    moments = [_seconds(story, change.at) for change in region.history]
    line = f"M0 {HEIGHT}" + "".join(
        f"H{_x(at, total)}V{HEIGHT - change.weight}" for at, change in zip(moments, region.history, strict=True)
    )
    spans = zip(pairwise([*moments, total]), region.history, strict=True)
    mirrored = "".join(
        f"M{_x(start, total)} {HEIGHT - change.mirror}H{_x(stop, total)}"
        for (start, stop), change in spans
        if change.mirror
    )
    users = f"{line}H{WIDTH}"
    below = f"{users}V{HEIGHT}H0Z"
    return Chart(users=users, below=below, mirrored=mirrored, label=_words(region, story), took=stopwatch(total))


def _words(region: RegionTraffic, story: DeliveryState) -> str:
    said = [
        f"{change.weight}%{f' and {change.mirror}% mirrored' if change.mirror else ''}"
        f" from {stopwatch(_seconds(story, change.at))}"
        for change in region.history
    ]
    return f"Users of {region.name} on version {story.version}: {', '.join(said) or 'none'}"


def _seconds(story: DeliveryState, moment: datetime) -> float:
    return max(seconds_into(story, moment), 0.0)


def _x(seconds: float, total: float) -> str:
    return f"{min(seconds / total, 1) * WIDTH:.1f}"


HELD_MARK = "‖"


def news(view: PageView) -> str:
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


def delivery(seen: DeliverySnapshot) -> dict[str, Any]:
    """One delivery, whole."""
    story, summary = seen.story or DeliveryState(), seen.summary
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
        "steps": [_step(step, story) for step in story.steps if step.state is not StepStatus.SKIPPED],
        "skipped": sum(step.state is StepStatus.SKIPPED for step in story.steps),
        "at_work": "" if dead else next((step.id for step in story.steps if _is_at_work(step)), ""),
        "done": sum(step.state is StepStatus.DONE for step in story.steps),
    }


def elapsed(view: PageView) -> str:
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


def _headline(seen: DeliverySnapshot) -> str:
    name = f"{seen.summary.name} {seen.summary.version}"
    if not seen.over and not seen.alive:
        return f"{name} died at {seen.summary.last_step or 'its start'}"
    if seen.story is None or seen.story.started is None:
        return f"{name}: {seen.summary.outcome or 'on its way'}"
    return headline(seen.story)


def _facts(seen: DeliverySnapshot, story: DeliveryState) -> list[tuple[str, str]]:
    summary = seen.summary
    facts = [
        ("Version", f"{summary.name} {summary.version}"),
        ("Champion", summary.champion or "none"),
        ("Began", moment(summary.started)),
        *people(story),
        *([("Still open", still_open(story))] if story.left else []),
    ]
    if summary.ended is not None:
        facts += [
            ("Took", duration(max((summary.ended - summary.started).total_seconds(), 0))),
            ("Outcome", summary.outcome or "none"),
            ("Decided by", decision(story) or summary.reason or "nothing was written down"),
        ]
    return facts


def _region(region: RegionTraffic, story: DeliveryState) -> dict[str, Any]:
    return {"name": region.name, "shares": shares(region, story), "chart": chart(region, story)}


def _step(step: StepState, story: DeliveryState) -> dict[str, Any]:
    held = _is_held(step)
    return {
        "id": step.id,
        "state": "held" if held else str(step.state),
        "mark": HELD_MARK if held else STEP_MARKS[step.state],
        "when": _when(step),
        "progress": step.progress if step.state is StepStatus.RUNNING else None,
        "message": step.message,
        "gates": [gate_row(gate) for gate in _gates(step, story.gates)],
    }


def _is_at_work(step: StepState) -> bool:
    return step.state is StepStatus.RUNNING or _is_held(step)


def _is_held(step: StepState) -> bool:
    """Whether it waits for people or for the end of a freeze: only then a step that has not begun has a message."""
    return step.state is StepStatus.WAITING and bool(step.message)


def _when(step: StepState) -> str:
    if step.started is None:
        return ""
    return duration(step.seconds(step.ended)) if step.ended else f"since {step.started:%H:%M:%S} UTC"


def _gates(step: StepState, gates: Sequence[GateState]) -> list[GateState]:
    return [gate for gate in gates if gate.step == step.id]


BY_TIME = "status"
"""The part that changes by time alone."""
PARTS = ("news", BY_TIME, "requests", "now", "earlier")
"""In the order of the page; each is a macro of the template, and the id of an element that holds what it says."""

_ENVIRONMENT = html_templates("pipelines.views.page")


def draw(view: PageView) -> PageParts:
    """The parts as they are now."""
    seen = [(each, delivery(each)) for each in view.look.deliveries] if view.look else []
    known = {
        "view": view,
        "moment": moment,
        "ticked": ticked,
        "sentence": news(view),
        "elapsed": elapsed(view),
        "open": [rows for each, rows in seen if not each.over],
        "over": [rows for each, rows in seen if each.over],
    }
    module = _ENVIRONMENT.get_template("parts.html.j2").make_module(known)
    parts = {name: str(getattr(module, name)()) for name in PARTS}
    lasting = "\0".join(html for name, html in parts.items() if name != BY_TIME)
    return PageParts(parts=parts, digest=hashlib.sha256(lasting.encode()).hexdigest()[:16])


def page(model: str, picture: PageParts) -> str:
    """The whole page, for browsers that come."""
    return _ENVIRONMENT.get_template("page.html.j2").render(model=model, picture=picture)


def style() -> str:
    """The report's style sheet, and what only the live page has."""
    return _text("pipelines.views.report", "report.css") + _text("pipelines.views.page", "page.css")


def script() -> str:
    """What keeps the page current."""
    return _text("pipelines.views.page", "page.js")


def _text(package: str, name: str) -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")
