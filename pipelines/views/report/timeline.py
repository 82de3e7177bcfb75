"""The figure of a delivery over time: who served whom, in which step, and what the gates said."""

from __future__ import annotations

from datetime import datetime
from html import escape
from math import nan
from typing import TYPE_CHECKING

from gates.model import GateOutcome
from pipelines.events.state import DeliveryState, GateState, RegionTraffic, StepState
from pipelines.views.report.figures import BAD, BAND, CANARY, GOOD, INK, MUTED, STYLE, UNSURE, inline
from pipelines.views.wording import stopwatch
from registry.model import StepId

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH_INCHES = 10.0
STRIP_INCHES, WEIGHTS_INCHES, LANE_INCHES = 0.3, 1.15, 0.24
MARKERS = {
    GateOutcome.PASS: ("o", GOOD),
    GateOutcome.RUNNING: (">", MUTED),
    GateOutcome.INCONCLUSIVE: ("D", UNSURE),
    GateOutcome.ERROR: ("s", UNSURE),
    GateOutcome.FAIL: ("X", BAD),
}
LABEL_SHARE_PER_LETTER = 0.0085
"""Share of the figure's width that a letter of a step's name takes; in a region, names that do not fit are left out."""
TICKS_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)
MOST_TICKS = 9


def timeline(name: str, story: DeliveryState) -> str:
    """Per region the weight over time above its gates' verdicts; on top the steps that belong to no region."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    regions = [region for region in story.regions if touched(region, story)]
    lanes = [_lanes(region, story) for region in regions]
    heights = [
        STRIP_INCHES,
        *(inches for names in lanes for inches in (WEIGHTS_INCHES, LANE_INCHES * (len(names) or 0.5))),
    ]
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_INCHES, sum(heights) + 0.25 * len(heights)), layout="constrained")
        rows = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
        end = length(story)
        _strip(rows[0], story, end)
        for index, (region, names) in enumerate(zip(regions, lanes, strict=True)):
            _weights(rows[1 + 2 * index], story, region, end)
            _verdicts(rows[2 + 2 * index], story, region, names)
        _time_axis(rows[-1], end)
        label = f"Traffic weights, steps and verdicts of {story.model} {story.version} over time"
        return inline(figure, name=name, label=escape(label, quote=True))


def touched(region: RegionTraffic, story: DeliveryState) -> bool:
    """Whether anything happened there; a region the delivery never reached has nothing to show."""
    return bool(region.history) or any(
        step.region == region.name and (step.started or step.held_since) for step in story.steps
    )


def _lanes(region: RegionTraffic, story: DeliveryState) -> list[str]:
    return list(dict.fromkeys(gate.name for gate in story.gates if _place(gate) == region.name))


def _time_axis(axes: Axes, end: float) -> None:
    from matplotlib.ticker import MultipleLocator

    axes.set_xlim(0, end)
    apart = next((each for each in TICKS_SECONDS if end / each <= MOST_TICKS), end / MOST_TICKS)
    axes.xaxis.set_major_locator(MultipleLocator(apart))
    axes.xaxis.set_major_formatter(lambda seconds, _: stopwatch(seconds))
    axes.tick_params(bottom=True)


def _strip(axes: Axes, story: DeliveryState, end: float) -> None:
    """The topmost row: the steps and verdicts that belong to no region."""
    steps = [step for step in story.steps if step.region is None]
    _bands(axes, story, steps)
    named = [(step.stage, seconds_into(story, step.started)) for step in _begun(steps)]
    named += [(f"waits for {what}", start) for what, start, _ in waits(story, steps)]
    for text, start in strip_labels(sorted(named, key=lambda each: each[1]), end):
        # The widths are estimates: what was moved to the left ends where the axis ends.
        at, side = (end, "right") if 0 < start == _latest_start(text, end) else (start, "left")
        axes.text(at, 0.65, text, ha=side, va="center", fontsize=7.5, color=MUTED)
    names = {region.name for region in story.regions}
    for gate in story.gates:
        if _place(gate) not in names:
            _verdict(axes, story, gate, 0.2)
    axes.set_ylim(0, 1)
    axes.set_yticks([0.5], ["delivery"])
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(bottom=False)


def _weights(axes: Axes, story: DeliveryState, region: RegionTraffic, end: float) -> None:
    """Percent of a region's users on the new version, filled; percent mirrored to it, dashed."""
    steps = [step for step in story.steps if step.region == region.name]
    _bands(axes, story, steps)
    _names_inside(axes, story, steps, end)
    moments = [0.0, *(seconds_into(story, change.at) for change in region.history), end]
    weights = _series(region, "weight")
    axes.step(moments, weights, where="post", color=CANARY, linewidth=1.8)
    axes.fill_between(moments, weights, step="post", color=CANARY, alpha=0.22, linewidth=0)
    # Nothing is drawn while nothing is mirrored: a line at 0 would read as a weight.
    mirrored = [percent or nan for percent in _series(region, "mirror")]
    axes.step(moments, mirrored, where="post", color=CANARY, linewidth=1.4, linestyle="--")
    # Room above 100 % for the names of the steps.
    axes.set_ylim(0, 125)
    axes.set_yticks([0, 25, 50, 100], ["0%", "25%", "50%", "100%"])
    axes.set_title(region.name, loc="left", fontsize=9.5, fontweight="bold", color=INK)
    axes.grid(visible=False, axis="x")
    axes.tick_params(bottom=False)


def _series(region: RegionTraffic, field: str) -> list[int]:
    """A value per moment: nothing at first, then after each change, and the last one held to the end."""
    values = [0, *(int(getattr(change, field)) for change in region.history)]
    return [*values, values[-1]]


def strip_labels(steps: list[tuple[str, float]], end: float) -> list[tuple[str, float]]:
    """Names of steps and where each text begins, in seconds; names that would run into each other share one text.

    No text goes past `end`. The steps come in the order in which they began.
    """
    placed: list[tuple[str, float]] = []
    for name, start in steps:
        text, at = name, min(start, _latest_start(name, end))
        while placed and placed[-1][1] + _width(placed[-1][0] + "  ", end) > at:
            before, at = placed.pop()
            text = f"{before}, {text}"
            at = min(at, _latest_start(text, end))
        placed.append((text, at))
    return placed


def _width(text: str, end: float) -> float:
    return len(text) * LABEL_SHARE_PER_LETTER * end


def _latest_start(text: str, end: float) -> float:
    return max(0.0, end - _width(text, end))


def _begun(steps: list[StepState]) -> list[StepState]:
    return [step for step in steps if step.started]


def _span(story: DeliveryState, step: StepState) -> tuple[float, float]:
    return seconds_into(story, step.started), seconds_into(story, step.ended or story.ended or last_moment(story))


def _bands(axes: Axes, story: DeliveryState, steps: list[StepState]) -> None:
    """One shade per step, every second one darker; hatched while people, or a freeze, held one back."""
    for index, step in enumerate(_begun(steps)):
        start, stop = _span(story, step)
        axes.axvspan(start, stop, color=BAND, alpha=0.9 if index % 2 else 0.45, linewidth=0)
    for _, start, stop in waits(story, steps):
        axes.axvspan(start, stop, facecolor="none", edgecolor=UNSURE, alpha=0.6, hatch="///", linewidth=0)


def waits(story: DeliveryState, steps: list[StepState]) -> list[tuple[str, float, float]]:
    """What the steps waited for before they began, from when to when in seconds."""
    found = []
    for step in steps:
        if step.held_since:
            until = step.started if step.started and step.started > step.held_since else None
            stop = until or story.ended or last_moment(story)
            found.append((step.held_by, seconds_into(story, step.held_since), seconds_into(story, stop)))
    return found


def _names_inside(axes: Axes, story: DeliveryState, steps: list[StepState], end: float) -> None:
    """The name of each step above its band, where it fits."""
    for step in _begun(steps):
        start, stop = _span(story, step)
        name = f"{step.stage} {step.weight}%" if step.weight is not None else step.stage
        _name_inside(axes, name, start, stop, end)
    for what, start, stop in waits(story, steps):
        _name_inside(axes, f"waits for {what}", start, stop, end)


def _name_inside(axes: Axes, name: str, start: float, stop: float, end: float) -> None:
    if _width(name, end) < stop - start:
        axes.text((start + stop) / 2, 112, name, ha="center", va="center", fontsize=7.5, color=MUTED)


def _verdicts(axes: Axes, story: DeliveryState, region: RegionTraffic, lanes: list[str]) -> None:
    """One lane for each gate that was asked in the region."""
    for gate in story.gates:
        if _place(gate) == region.name:
            _verdict(axes, story, gate, lanes.index(gate.name))
    axes.set_ylim(len(lanes) - 0.5, -0.5) if lanes else axes.set_ylim(0, 1)
    axes.set_yticks(range(len(lanes)), lanes)
    axes.grid(visible=False, axis="y")
    axes.tick_params(bottom=False)


def _verdict(axes: Axes, story: DeliveryState, gate: GateState, lane: float) -> None:
    """A thin line while the gate was asked, ended by the mark of what it said last."""
    first, last = seconds_into(story, gate.history[0].at), seconds_into(story, gate.history[-1].at)
    marker, colour = MARKERS[gate.latest.outcome]
    axes.plot([first, last], [lane, lane], color=MUTED, linewidth=0.8)
    axes.plot([last], [lane], marker=marker, color=colour, markersize=7, clip_on=False, linestyle="none")


def _place(gate: GateState) -> str | None:
    return gate.region or StepId.parsed(gate.step).place


def length(story: DeliveryState) -> float:
    """Seconds to its end, or to the last that is known of it; at least one, so that there is something to draw on."""
    return max(seconds_into(story, story.ended or last_moment(story)), 1.0)


def seconds_into(story: DeliveryState, moment: datetime | None) -> float:
    """Seconds since the delivery started."""
    return (moment - story.started).total_seconds() if moment and story.started else 0.0


def last_moment(story: DeliveryState) -> datetime | None:
    """The last moment anything is known of, for a delivery that has not ended."""
    moments = [moment for step in story.steps for moment in (step.held_since, step.started, step.ended) if moment]
    moments += [judgement.at for gate in story.gates for judgement in gate.history]
    return max(moments, default=story.started)
