"""Puts states, figures and tables into the page of the report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from markupsafe import Markup

from gates.evidence.request_record import RequestRecord
from pipelines.events.state import DeliveryState, StepState
from pipelines.views.html import html_templates
from pipelines.views.report.figures import (
    ArmRequests,
    DeliveryRecord,
    can_draw,
    distribution,
    during,
    per_version,
    quantile,
    scores,
    side_by_side,
)
from pipelines.views.report.timeline import timeline
from pipelines.views.wording import (
    STEP_MARKS,
    at_the_end,
    decision,
    gate_row,
    headline,
    moment,
    people,
    still_open,
    stopwatch,
    tone,
)
from registry.model import Event
from tidegate.core.units import duration

FEWEST = 5
"""A distribution of fewer requests than this is not drawn."""


def render_report(
    deliveries: Sequence[DeliveryRecord], *, records: Sequence[RequestRecord], title: str, back: str = ""
) -> str:
    """The page about `deliveries`, in their order.

    Args:
        deliveries: with all their events.
        records: all user requests; each delivery picks its own.
        title: of the page.
        back: where a link on top leads; a page that stands alone has none.
    """
    sections = [_section(f"d{number}", delivery, records) for number, delivery in enumerate(deliveries, 1)]
    template = html_templates("pipelines.views.report").get_template("report.html.j2")
    return template.render(title=title, sections=sections, back=back)


def _section(name: str, delivery: DeliveryRecord, records: Iterable[RequestRecord]) -> dict[str, Any]:
    """What the template shows of one delivery; `name` keeps its ids apart from those of others on the page."""
    story = delivery.story
    own = during(story, records)
    together = side_by_side(story, own)
    return {
        "name": name,
        "headline": headline(story),
        "tone": tone(story),
        "outcome": story.outcome or "running",
        "decision": decision(story),
        "version": story.version,
        "champion": story.champion,
        "took": duration(delivery.took_seconds),
        "facts": _facts(delivery, own),
        "timeline": Markup(timeline(f"{name}-timeline", story)) if story.started and can_draw() else "",
        "undrawn": not can_draw(),
        "gates": [gate_row(gate) for gate in story.gates],
        "figures": _figures(name, story, together),
        "together": together,
        "requests": [_requests(arm) for arm in per_version(story, own)],
        "steps": [_step(step, story) for step in story.steps],
        "log": [_log(event, story) for event in delivery.events],
    }


def _facts(delivery: DeliveryRecord, own: Sequence[RequestRecord]) -> list[tuple[str, str]]:
    story = delivery.story
    failed, cut = sum(not record.ok for record in own), sum(record.cut for record in own)
    # How many users a bad version reached is the first question after it was taken back.
    met = sum(record.version == story.version for record in own)
    began = moment(story.started) if story.started else "never"
    return [
        ("Outcome", story.outcome or "running"),
        ("Decided by", decision(story)),
        *([("Still open", still_open(story))] if story.left else []),
        ("Version", f"{story.model} {story.version}"),
        ("Champion", story.champion or "none"),
        ("Began", began),
        ("Took", duration(delivery.took_seconds)),
        ("Users' requests", f"{len(own)}, {failed} failed, {cut} cut" if own else "none recorded"),
        (f"Answered by version {story.version}", str(met)),
        ("Regions at the end", "; ".join(f"{region.name}: {at_the_end(region, story)}" for region in story.regions)),
        *people(story),
        ("Delivery", delivery.id),
    ]


def _figures(name: str, story: DeliveryState, together: Sequence[ArmRequests]) -> list[dict[str, Any]]:
    """What can be drawn: a figure without enough data is left out, not drawn empty."""
    if not can_draw():
        return []
    measures = (
        ("Time to first token", "ttft", ArmRequests.ttft_seconds),
        ("Time between tokens", "itl", ArmRequests.itl_seconds),
    )
    drawn = []
    for title, key, read in measures:
        arms = [(arm, read(arm)) for arm in together]
        if len(arms) == 2 and min(len(values) for _, values in arms) >= FEWEST:
            curves = [(arm.version, arm.canary, values) for arm, values in arms]
            notes = [_note(arm, values) for arm, values in arms]
            drawn.append({"title": title, "svg": Markup(distribution(f"{name}-{key}", title, curves)), "notes": notes})
    judged = _scores(story)
    if judged:
        title = "Quality of the answers"
        drawn.append({"title": title, "svg": Markup(scores(f"{name}-quality", judged)), "notes": []})
    return drawn


def _note(arm: ArmRequests, seconds: Sequence[float]) -> str:
    p50, p95 = (duration(quantile(seconds, share)) for share in (0.5, 0.95))
    return f"version {arm.version}: p50 {p50}, p95 {p95} (n = {len(seconds)})"


def _scores(story: DeliveryState) -> list[tuple[str, float, float]]:
    """Final scores that exist for both arms, by gate and region."""
    found = []
    for gate in story.gates:
        numbers = gate.latest.numbers
        for name, value in numbers.items():
            stable = numbers.get(name.replace("canary", "stable"))
            if "canary" in name and "score" in name and stable is not None:
                found.append((gate.step.replace("@", "\n"), value, stable))
    return found


def _requests(arm: ArmRequests) -> dict[str, Any]:
    return {
        "version": arm.version or "no answer",
        "canary": arm.canary,
        "count": len(arm.records),
        "failed": arm.failed,
        "cut": arm.cut,
        "tokens": f"{sum(record.output_tokens for record in arm.records):,}",
    }


def _step(step: StepState, story: DeliveryState) -> dict[str, Any]:
    return {
        "id": step.id,
        "state": str(step.state),
        "mark": STEP_MARKS[step.state],
        "took": duration(step.seconds(story.ended or step.started)) if step.started else "",
        "message": step.message,
    }


def _log(event: Event, story: DeliveryState) -> tuple[str, str, str, str]:
    elapsed = (event.at - story.started).total_seconds() if story.started else 0.0
    return stopwatch(elapsed), event.step, event.kind, event.message
