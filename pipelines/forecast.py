"""When a delivery will be over, from its plan and from how long its steps have taken so far. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

from pipelines.story import Step, StepState, Story

SLOWEST_PACE, FASTEST_PACE = 5.0, 0.5
"""How far the steps so far may stretch or shrink what the remaining ones are expected to take."""


def seconds_left(story: Story, now: datetime) -> float | None:
    """What the remaining steps should still take, at the pace of those so far.

    Waves follow each other; the regions of one go at the same time, so its slowest counts. None when
    nobody knows: before the start, after the end, and once anything failed or is taken back.
    """
    troubled = any(step.state in (StepState.FAILED, StepState.UNDONE) or step.stage == "undo" for step in story.steps)
    # What is being taken back follows no plan.
    if not story.steps or story.outcome or troubled:
        return None
    pace = _pace(story.steps, now)
    lanes: dict[int | None, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for step in story.steps:
        lanes[step.wave][step.region or ""] += _remaining(step, pace, now)
    return sum(_wave(regions) for regions in lanes.values())


def _wave(regions: dict[str, float]) -> float:
    """The slowest region, and what the wave does as a whole, such as its bake."""
    together = regions.get("", 0.0)
    return together + max((left for region, left in regions.items() if region), default=0.0)


def _pace(steps: Iterable[Step], now: datetime) -> float:
    """How much longer than expected things take here: over what is finished or overdue."""
    telling = [
        step
        for step in steps
        if step.state is StepState.DONE or (step.started and step.seconds(now) > step.expected_seconds)
    ]
    expected = sum(step.expected_seconds for step in telling)
    if not expected:
        return 1.0
    return min(max(sum(step.seconds(now) for step in telling) / expected, FASTEST_PACE), SLOWEST_PACE)


def _remaining(step: Step, pace: float, now: datetime) -> float:
    if step.state not in (StepState.WAITING, StepState.RUNNING):
        return 0.0
    return max(step.expected_seconds * pace - step.seconds(now), 0.0)
