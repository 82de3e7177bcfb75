"""A region's traffic over time as paths of an SVG that is as wide as there is room.

The report draws the same with matplotlib, in more detail; that takes 160 ms and a width that no phone has.
"""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise

from pipelines.report.timeline import length, seconds_into
from pipelines.story import Region, Story
from pipelines.wording import stopwatch
from tidegate.core.model import Value

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


def chart(region: Region, story: Story) -> Chart:
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


def _words(region: Region, story: Story) -> str:
    said = [
        f"{change.weight}%{f' and {change.mirror}% mirrored' if change.mirror else ''}"
        f" from {stopwatch(_seconds(story, change.at))}"
        for change in region.history
    ]
    return f"Users of {region.name} on version {story.version}: {', '.join(said) or 'none'}"


def _seconds(story: Story, moment: datetime) -> float:
    return max(seconds_into(story, moment), 0.0)


def _x(seconds: float, total: float) -> str:
    return f"{min(seconds / total, 1) * WIDTH:.1f}"
