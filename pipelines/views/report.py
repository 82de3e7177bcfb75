"""One self-contained HTML page about one or more deliveries: no script, no outside resource."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.events.state import state_of
from pipelines.views.section import TEMPLATES, section
from pipelines.views.wording import decision, stopwatch
from registry.model import Event


def render_report(deliveries: Mapping[str, Sequence[Event]], *, title: str) -> str:
    """The page about `deliveries`: all events of each by its id, in their order; `title` is that of the page."""
    sections = [_section(f"d{number}", *told) for number, told in enumerate(deliveries.items(), 1)]
    return TEMPLATES.get_template("report.html.j2").render(title=title, sections=sections)


def _section(name: str, delivery: str, events: Sequence[Event]) -> dict[str, Any]:
    story = state_of(events)
    rows = section(name, delivery, story)
    return rows | {
        "decision": decision(story),
        "took": rows["facts"].get("Took", ""),
        "log": [
            (stopwatch((event.at - (story.started or event.at)).total_seconds()), event.step, event.kind, event.message)
            for event in events
        ],
    }
