"""A delivery as a section of the report, with its figure over time.

The figure is geometry, in the units of an SVG's `viewBox`; `templates/delivery.html.j2` draws it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from pipelines.events.state import DeliveryState, GateState, RegionTraffic, StepState, StepStatus
from pipelines.views.wording import (
    STEP_MARKS,
    VERDICT_MARKS,
    at_the_end,
    facts,
    gate_row,
    headline,
    moment,
    people,
    stopwatch,
    tone,
)
from registry.model import StepId
from tidegate.core.units import duration

LEFT, RIGHT = 104, 990
"""Where the time axis begins and ends in a drawing of 1000: names of gates stand left of it."""
STRIP, TITLE, WEIGHTS, LANE, AXIS = 30, 34, 80, 17, 24
"""Heights: of what belongs to no region, then of a region's name, its users, one of its gates; and of the axis."""
LETTER = 6.0
"""Width of a letter; a name that does not fit above its step is left out."""
TICKS_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)
MOST_TICKS = 9


def timeline(story: DeliveryState) -> dict[str, Any]:
    """Per region its users over time above its gates' verdicts; on top what belongs to no region."""
    axis = _Axis(story)
    rows, top = list[dict[str, Any]](), STRIP
    names = {region.name for region in story.regions}
    whole = [gate for gate in story.gates if _place(gate) not in names]
    steps = [step for step in story.steps if step.region is None]
    rows.append({"y": 0, "region": "", **axis.spans(steps), "lanes": [axis.lane("", whole, STRIP - 4)]})
    for region in story.regions:
        if touched(region, story):
            gates = [gate for gate in story.gates if _place(gate) == region.name]
            steps = [step for step in story.steps if step.region == region.name]
            lanes = [
                axis.lane(name, [gate for gate in gates if gate.name == name], TITLE + WEIGHTS + LANE * at)
                for at, name in enumerate(dict.fromkeys(gate.name for gate in gates), 1)
            ]
            rows.append(
                {"y": top, "region": region.name, "label": in_words(region, story)}
                | axis.spans(steps)
                | axis.weights(region)
                | {"lanes": lanes}
            )
            top += TITLE + WEIGHTS + LANE * len(lanes) + 8
    apart = next((each for each in TICKS_SECONDS if axis.total / each <= MOST_TICKS), axis.total / MOST_TICKS)
    ticks = [(axis.x(at * apart), stopwatch(at * apart)) for at in range(int(axis.total / apart) + 1)]
    return {"rows": rows, "ticks": ticks, "bottom": top, "height": top + AXIS, "title": TITLE, "weights": WEIGHTS}


class _Axis:
    """Moments of one delivery as places from left to right."""

    def __init__(self, story: DeliveryState) -> None:
        self._story = story
        self.total = length(story)

    def x(self, seconds: float) -> float:
        return round(LEFT + (RIGHT - LEFT) * min(max(seconds / self.total, 0), 1), 1)

    def at(self, moment: datetime | None) -> float:
        return self.x(seconds_into(self._story, moment))

    def spans(self, steps: Sequence[StepState]) -> dict[str, Any]:
        """One shade for each step, every second one darker, and what they waited for before; named where it fits."""
        end = self._story.ended or last_moment(self._story)
        begun = [step for step in steps if step.started]
        bands = [(step.name, self.at(step.started), self.at(step.ended or end)) for step in begun]
        held = [(f"waits for {what}", self.x(start), self.x(stop)) for what, start, stop in waits(self._story, steps)]
        return {
            "bands": [
                (name, start, round(stop - start, 1), "dark" if at % 2 else "")
                for at, (name, start, stop) in enumerate(bands)
            ]
            + [(name, start, round(stop - start, 1), "held") for name, start, stop in held],
            "names": [
                ((start + stop) / 2, name) for name, start, stop in bands + held if len(name) * LETTER < stop - start
            ],
        }

    def weights(self, region: RegionTraffic) -> dict[str, str]:
        """Percent of users on the version as a line and the area below it, and percent mirrored to it, as paths."""

        def y(percent: int) -> float:
            return TITLE + WEIGHTS * (1 - percent / 100)

        moments = [self.at(change.at) for change in region.history]
        line = f"M{LEFT} {y(0):g}" + "".join(
            f"H{at:g}V{y(change.weight):g}" for at, change in zip(moments, region.history, strict=True)
        )
        mirrored = "".join(
            f"M{start:g} {y(change.mirror):g}H{stop:g}"
            for (start, stop), change in zip(pairwise([*moments, RIGHT]), region.history, strict=True)
            if change.mirror
        )
        return {"users": f"{line}H{RIGHT}", "below": f"{line}H{RIGHT}V{y(0):g}H{LEFT}Z", "mirrored": mirrored}

    def lane(self, name: str, gates: Sequence[GateState], y: int) -> dict[str, Any]:
        """A line while each was asked, ended by the mark of what it said last."""
        said = [
            {
                "from": self.at(gate.history[0].at),
                "to": self.at(gate.history[-1].at),
                "mark": VERDICT_MARKS[gate.latest.outcome],
                "outcome": str(gate.latest.outcome),
                "told": f"{gate.name} in {gate.step}: {gate.latest.outcome}",
            }
            for gate in gates
        ]
        return {"name": name, "y": y, "said": said}


def touched(region: RegionTraffic, story: DeliveryState) -> bool:
    """Whether anything happened there; a region the delivery never reached has nothing to show."""
    return bool(region.history) or any(
        step.region == region.name and (step.started or step.held_since) for step in story.steps
    )


def in_words(region: RegionTraffic, story: DeliveryState) -> str:
    """What the line shows, for who cannot see it."""
    said = [
        f"{change.weight}%{f' and {change.mirror}% mirrored' if change.mirror else ''}"
        f" from {stopwatch(max(seconds_into(story, change.at), 0.0))}"
        for change in region.history
    ]
    return f"Users of {region.name} on version {story.version}: {', '.join(said) or 'none'}"


def waits(story: DeliveryState, steps: Sequence[StepState]) -> Iterator[tuple[str, float, float]]:
    """What the steps waited for before they began, from when to when in seconds."""
    for step in steps:
        if step.held_since:
            until = step.started if step.started and step.started > step.held_since else None
            stop = until or story.ended or last_moment(story)
            yield step.held_by, seconds_into(story, step.held_since), seconds_into(story, stop)


def length(story: DeliveryState) -> float:
    """Seconds to its end, or to the last that is known of it; at least one, so that there is something to draw on."""
    return max(seconds_into(story, story.ended or last_moment(story)), 1.0)


def seconds_into(story: DeliveryState, moment: datetime | None) -> float:
    """Seconds since the delivery started."""
    return (moment - story.started).total_seconds() if moment and story.started else 0.0


def last_moment(story: DeliveryState) -> datetime | None:
    """The last moment anything is known of, for a delivery that has not ended."""
    moments = [moment for step in story.steps for moment in (step.held_since, step.started, step.ended) if moment]
    moments += [said.at for gate in story.gates for said in gate.history]
    return max(moments, default=story.started)


def _place(gate: GateState) -> str | None:
    return gate.region or StepId.parsed(gate.step).region


HELD_MARK = "‖"

TEMPLATES = Environment(
    loader=PackageLoader("pipelines.views", "templates"),
    autoescape=True,  # what anybody wrote into the ledger is text
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def section(name: str, delivery: str, story: DeliveryState) -> dict[str, Any]:
    """What the template shows; `name` keeps its ids apart from those of others on the page."""
    return {
        "name": name,
        "headline": headline(story),
        "tone": tone(story),
        "outcome": story.outcome or "running",
        "version": story.version,
        "facts": _facts(delivery, story),
        "figure": timeline(story) if story.started else None,
        "steps": [_step(step, story) for step in story.steps if step.state is not StepStatus.SKIPPED],
        "skipped": sum(step.state is StepStatus.SKIPPED for step in story.steps),
        "done": sum(step.state is StepStatus.DONE for step in story.steps),
    }


def _facts(delivery: str, story: DeliveryState) -> dict[str, str]:
    regions = "; ".join(f"{region.name}: {at_the_end(region, story)}" for region in story.regions)
    told = {
        **facts(story, last_moment(story)),
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
