"""Which user requests belong to a delivery, and which of them may be compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import ceil

from gates.load.records import RequestRecord
from pipelines.report.model import Arm
from pipelines.story import Region, Story

CURVE_POINTS = 120
"""Points of a distribution's curve; more would be larger and look the same."""


def during(story: Story, records: Iterable[RequestRecord]) -> list[RequestRecord]:
    """The requests that began while the delivery ran, in its regions."""
    if story.started is None:
        return []
    regions = {region.name for region in story.regions}
    first = story.started.timestamp()
    last = story.ended.timestamp() if story.ended else float("inf")
    return [record for record in records if record.region in regions and first <= record.started <= last]


def per_version(story: Story, records: Iterable[RequestRecord]) -> list[Arm]:
    """All requests by the version that answered; the empty version stands for no answer at all."""
    by_version: dict[str, list[RequestRecord]] = {}
    for record in records:
        by_version.setdefault(record.version, []).append(record)
    return [
        Arm(version=version, canary=version == story.version, records=tuple(found))
        for version, found in sorted(by_version.items(), key=lambda item: (item[0] != story.champion, item[0]))
    ]


def side_by_side(story: Story, records: Iterable[RequestRecord]) -> list[Arm]:
    """Champion and canary, only from regions and times in which both answered users.

    Anything else would compare a quiet minute with a busy one. Empty when users never met both.
    """
    shared = {region.name: _shared_times(region, story) for region in story.regions}
    together = [
        record for record in records if any(start <= record.started < end for start, end in shared[record.region])
    ]
    arms = [arm for arm in per_version(story, together) if arm.version in (story.champion, story.version)]
    return arms if len(arms) == 2 else []


def curve(values: Sequence[float]) -> tuple[list[float], list[float]]:
    """The cumulative distribution as points: a value, and the share of values up to it."""
    ordered = sorted(values)
    count = len(ordered)
    steps = min(count, CURVE_POINTS)
    picked = [round(index * (count - 1) / max(steps - 1, 1)) for index in range(steps)]
    return [ordered[index] for index in picked], [(index + 1) / count for index in picked]


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of the values do not exceed.

    Raises:
        ValueError: when there are no values.
    """
    if not values:
        raise ValueError("no values have no quantile")
    ordered = sorted(values)
    return ordered[max(ceil(len(ordered) * share) - 1, 0)]


def _shared_times(region: Region, story: Story) -> list[tuple[float, float]]:
    """When both versions had users there, as Unix times."""
    end = story.ended.timestamp() if story.ended else float("inf")
    starts = [change.at.timestamp() for change in region.history] + [end]
    spans = zip(region.history, pairwise(starts), strict=True)
    # At 0 or 100 % one of the two had no users.
    return [span for change, span in spans if 0 < change.weight < 100]
