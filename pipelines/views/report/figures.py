"""The report's figures as inline SVG, and the requests of users that they compare."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from html import escape
from importlib.util import find_spec
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING, Any

from gates.evidence.request_record import RequestRecord
from pipelines.events.state import DeliveryState, RegionTraffic, state_of
from registry.model import Event
from tidegate.core.model import Value


class DeliveryRecord(Value):
    """One delivery: its id and all its events, in their order."""

    id: str
    events: tuple[Event, ...]

    @cached_property
    def story(self) -> DeliveryState:
        return state_of(self.events)

    @property
    def took_seconds(self) -> float:
        """Until its end, or until its last event when it has none; 0 when nothing was recorded."""
        return self.story.elapsed_seconds(self.events[-1].at) if self.events else 0.0


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

    def ttft_seconds(self) -> list[float]:
        """Of the requests that were answered in full."""
        return [record.ttft_seconds for record in self.records if record.ok and record.ttft_seconds is not None]

    def itl_seconds(self) -> list[float]:
        """Mean seconds between tokens, of the requests that were answered in full."""
        return [record.itl_mean_seconds for record in self.records if record.ok and record.itl_mean_seconds is not None]


CURVE_POINTS = 120
"""Points of a distribution's curve; more would be larger and look the same."""


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


def _shared_times(region: RegionTraffic, story: DeliveryState) -> list[tuple[float, float]]:
    """When both versions had users there, as Unix times."""
    end = story.ended.timestamp() if story.ended else float("inf")
    starts = [change.at.timestamp() for change in region.history] + [end]
    spans = zip(region.history, pairwise(starts), strict=True)
    # At 0 or 100 % one of the two had no users.
    return [span for change, span in spans if 0 < change.weight < 100]


if TYPE_CHECKING:
    from matplotlib.figure import Figure


def can_draw() -> bool:
    """Whether matplotlib is installed; the image that a workflow's steps run in leaves it out."""
    return find_spec("matplotlib") is not None


# matplotlib takes colours, not CSS variables: these stand for variables, and `inline` puts those in their place.
INK = "#010101"
MUTED = "#010102"
GRID = "#010103"
BAND = "#010104"
STABLE = "#010105"
CANARY = "#010106"
GOOD = "#010107"
BAD = "#010108"
UNSURE = "#010109"
_VARIABLES = {
    INK: "ink",
    MUTED: "muted",
    GRID: "grid",
    BAND: "band",
    STABLE: "stable",
    CANARY: "canary",
    GOOD: "good",
    BAD: "bad",
    UNSURE: "unsure",
}
"""Colours no figure would pick by itself; each becomes a variable of the page's style sheet."""

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    # Names are not formulas: two dollar signs in one would be read as one, and refused.
    "text.parse_math": False,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "figure.facecolor": "none",
    # The same figure gives the same bytes on every run.
    "svg.hashsalt": "tidegate",
}


def inline(figure: Figure, *, name: str, label: str) -> str:
    """The figure as an `<svg>` element; `name` keeps its ids apart from others on the page, `label` says what it shows.

    `label` is put into an attribute as it is and must be escaped.
    """
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{name}-", text)
    for sentinel, variable in _VARIABLES.items():
        text = text.replace(sentinel, f"var(--{variable})")
    text = re.sub(r"'DejaVu Sans'(, sans-serif)*", "var(--font)", text)
    head, _, rest = text.partition(">")
    head = re.sub(r' (width|height)="[^"]*"', "", head).replace("<svg", f'<svg role="img" aria-label="{label}"')
    return f"{head}>{rest}"


SIZE_INCHES = (3.3, 2.2)
"""Width and height; the page scales it to the room that there is."""


def distribution(name: str, title: str, arms: Sequence[tuple[str, bool, Sequence[float]]]) -> str:
    """The share of requests that took at most so many milliseconds, one curve per arm.

    `arms` are label, whether it is the canary, and seconds; none of them may be empty.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=SIZE_INCHES, layout="constrained")
        axes = figure.subplots()
        for _, canary, seconds in arms:
            values, shares = curve([value * 1000 for value in seconds])
            colour = CANARY if canary else STABLE
            axes.step(values, shares, where="post", color=colour, linewidth=1.8)
            p95 = quantile(values, 0.95)
            axes.plot([p95], [0.95], marker="o", markersize=4.5, color=colour)
        axes.set_xlim(0, 1.15 * max(quantile(seconds, 0.99) for _, _, seconds in arms) * 1000)
        axes.set_ylim(0, 1.02)
        axes.set_yticks([0, 0.5, 0.95], ["0%", "50%", "95%"])
        axes.set_xlabel("milliseconds")
        return inline(figure, name=name, label=escape(f"{title}: cumulative share of requests per version", quote=True))


def scores(name: str, pairs: Sequence[tuple[str, float, float]]) -> str:
    """Scores between 0 and 1 as pairs of bars: label, canary, stable."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(SIZE_INCHES[0], 0.6 + 0.6 * len(pairs)), layout="constrained")
        axes = figure.subplots()
        for row, (_, canary, stable) in enumerate(pairs):
            for offset, value, colour in ((-0.2, stable, STABLE), (0.2, canary, CANARY)):
                axes.barh(row + offset, value, height=0.32, color=colour)
                axes.text(value + 0.015, row + offset, f"{value:.2f}", va="center", fontsize=8)
        axes.set_yticks(range(len(pairs)), [label for label, _, _ in pairs])
        axes.invert_yaxis()
        axes.set_xlim(0, 1.12 * max(1.0, *(max(pair[1:]) for pair in pairs)))
        axes.grid(visible=False, axis="y")
        return inline(figure, name=name, label="Scores of the canary next to the champion's")
