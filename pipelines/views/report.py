"""One self-contained HTML page about one or more deliveries: no script, no outside resource."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from gates.evidence.request_record import RequestRecord
from pipelines.events.state import DeliveryState, RegionTraffic, state_of
from pipelines.views.section import TEMPLATES, section
from pipelines.views.wording import decision, stopwatch
from registry.model import Event
from tidegate.core.model import Value
from tidegate.core.units import duration


class DeliveryRecord(Value):
    """One delivery: its id and all its events, in their order."""

    id: str
    events: tuple[Event, ...]

    @cached_property
    def story(self) -> DeliveryState:
        return state_of(self.events)


class ArmRequests(Value):
    """What users met on one version."""

    version: str
    canary: bool
    """Whether this is the version that was being delivered."""
    records: tuple[RequestRecord, ...]

    @property
    def failed(self) -> int:
        return sum(not record.ok for record in self.records)

    @property
    def cut(self) -> int:
        return sum(record.cut for record in self.records)

    def seconds(self, field: str) -> list[float]:
        """`ttft_seconds` or `itl_mean_seconds` of the requests that were answered in full."""
        return [value for each in self.records if each.ok and (value := getattr(each, field)) is not None]


MEASURES = {"Time to first token": "ttft_seconds", "Time between tokens": "itl_mean_seconds"}
FEWEST = 5
"""A distribution of fewer requests than this is not drawn."""
CURVE_POINTS = 120
"""Points of a distribution's curve; more would be larger and look the same."""


def render_report(deliveries: Sequence[DeliveryRecord], *, records: Sequence[RequestRecord], title: str) -> str:
    """The page about `deliveries`, in their order.

    Each picks its own of all `records` of users' requests.
    """
    sections = [_section(f"d{number}", delivery, records) for number, delivery in enumerate(deliveries, 1)]
    return TEMPLATES.get_template("report.html.j2").render(title=title, sections=sections)


def _section(name: str, delivery: DeliveryRecord, records: Iterable[RequestRecord]) -> dict[str, Any]:
    story = delivery.story
    own = during(story, records)
    arms = per_version(story, own)
    together = side_by_side(story, own)
    rows = section(name, delivery.id, story)
    # How many users a bad version reached is the first question after it was rolled back.
    met = sum(len(arm.records) for arm in arms if arm.canary)
    failed, cut = sum(arm.failed for arm in arms), sum(arm.cut for arm in arms)
    rows["facts"] |= {
        "Users' requests": f"{len(own)}, {failed} failed, {cut} cut" if own else "none recorded",
        f"Answered by version {story.version}": str(met),
    }
    return rows | {
        "decision": decision(story),
        "champion": story.champion,
        "took": rows["facts"].get("Took", ""),
        "figures": [figure for title, field in MEASURES.items() if (figure := _distribution(title, field, together))],
        "together": together,
        "requests": [
            {
                "version": arm.version or "no answer",
                "canary": arm.canary,
                "count": len(arm.records),
                "failed": arm.failed,
                "cut": arm.cut,
                "tokens": f"{sum(record.output_tokens for record in arm.records):,}",
            }
            for arm in arms
        ],
        "log": [
            (stopwatch((event.at - (story.started or event.at)).total_seconds()), event.step, event.kind, event.message)
            for event in delivery.events
        ],
    }


def during(story: DeliveryState, records: Iterable[RequestRecord]) -> list[RequestRecord]:
    """The requests that began while the delivery ran, in its regions."""
    if story.started is None:
        return []
    regions = {region.name for region in story.regions}
    first = story.started.timestamp()
    last = story.ended.timestamp() if story.ended else float("inf")
    return [record for record in records if record.region in regions and first <= record.started <= last]


def per_version(story: DeliveryState, records: Iterable[RequestRecord]) -> list[ArmRequests]:
    """All requests by the version that answered; the empty version stands for no answer at all."""
    by_version: dict[str, list[RequestRecord]] = {}
    for record in records:
        by_version.setdefault(record.version, []).append(record)
    return [
        ArmRequests(version=version, canary=version == story.version, records=tuple(found))
        for version, found in sorted(by_version.items(), key=lambda item: (item[0] != story.champion, item[0]))
    ]


def side_by_side(story: DeliveryState, records: Iterable[RequestRecord]) -> list[ArmRequests]:
    """Champion and canary, only from regions and times in which both answered users.

    Anything else would compare a quiet minute with a busy one. Empty when users never met both.
    """
    shared = {region.name: _shared_times(region, story) for region in story.regions}
    together = [
        record for record in records if any(start <= record.started < end for start, end in shared[record.region])
    ]
    arms = [arm for arm in per_version(story, together) if arm.version in (story.champion, story.version)]
    return arms if len(arms) == 2 else []


def _shared_times(region: RegionTraffic, story: DeliveryState) -> list[tuple[float, float]]:
    """When both versions had users there, as Unix times."""
    end = story.ended.timestamp() if story.ended else float("inf")
    starts = [change.at.timestamp() for change in region.history] + [end]
    spans = zip(region.history, pairwise(starts), strict=True)
    # At 0 or 100 % one of the two had no users.
    return [span for change, span in spans if 0 < change.weight < 100]


def _distribution(title: str, field: str, arms: Sequence[ArmRequests]) -> dict[str, Any] | None:
    """The share of requests that took at most so long, a curve for each arm; None where there are too few.

    The geometry is that of a drawing of 1000 by 600 units.
    """
    measured = [(arm, arm.seconds(field)) for arm in arms]
    if not measured or min(len(seconds) for _, seconds in measured) < FEWEST:
        return None
    longest = 1.15 * max(float(np.quantile(seconds, 0.99)) for _, seconds in measured)
    curves, notes = [], []
    for arm, seconds in measured:
        shares = np.linspace(0, 1, min(len(seconds), CURVE_POINTS))
        values = np.quantile(seconds, shares, method="inverted_cdf")
        points = zip(np.minimum(values / longest, 1) * 1000, (1 - shares) * 600, strict=True)
        p50, p95 = (float(np.quantile(seconds, share, method="inverted_cdf")) for share in (0.5, 0.95))
        path = "M0 600" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in points)
        curves.append({"path": path, "canary": arm.canary, "p95": round(p95 / longest * 1000, 1)})
        notes.append(f"version {arm.version}: p50 {duration(p50)}, p95 {duration(p95)} (n = {len(seconds)})")
    ticks = [(share * 1000, duration(longest * share)) for share in (0.25, 0.5, 0.75)]
    return {"title": title, "curves": curves, "ticks": ticks, "notes": notes}
