"""A dashboard as its JSON file has it once it is filled: rows of panels with questions, queries, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

from pydantic import Field

from tidegate.core.model import Value

COLUMNS = 24
"""Of Grafana's grid."""


class PanelKind(StrEnum):
    """How a panel looks; the values are Grafana's names."""

    TILES = "stat"
    """A coloured tile for each series: what is read first."""
    LINES = "timeseries"
    HEAT = "heatmap"
    DIAL = "gauge"
    BARS = "bargauge"
    STATES = "state-timeline"


class Colours(StrEnum):
    """Of a heat map's cells."""

    BLUES = "Blues"
    REDS = "Reds"


class Prerequisite(StrEnum):
    """What must be there for a query to have data; the words end the sentence `it needs ...`."""

    USERS = "users who ask"
    DELIVERY = "a delivery, under way or just ended"
    PAIRS = "a delivery that asks both versions the same prompts"
    DRIFT = "a delivery with the drift gate"
    ENTROPY = "a delivery with the drift gate on entropy, and users who ask for log probabilities"
    SCORES = "a judge that publishes scores"
    REGENERATIONS = "clients that say when a user asks again"
    ALERTS = "an alert that fires"
    GPU = "a GPU and NVIDIA's DCGM exporter"
    ENTRYPOINT = "engines that run under tidegate's entrypoint"
    SPECULATION = "an engine with speculative decoding"


class Query(Value):
    """One PromQL expression over the dashboard's variables, and how its series are named."""

    expr: str
    legend: str
    needs: Prerequisite = Prerequisite.USERS
    heat: bool = False
    """Cumulative buckets by `le`, to be drawn as a heat map."""


class ThresholdStep(Value):
    """The colour of values from a threshold on."""

    colour: str
    since: float | None = None
    """None: from the lowest value on; the first step has it, and no other."""


class ValueMapping(Value):
    """What a number means, in a word and a colour."""

    word: str
    colour: str


class Panel(Value):
    """One question to Prometheus, and what the answer asks of the one who reads it."""

    title: str
    kind: PanelKind
    question: str
    action: str
    """What to do when it looks bad."""
    queries: tuple[Query, ...] = Field(min_length=1, max_length=26)
    width: int = Field(gt=0, le=COLUMNS)
    height: int = Field(gt=0)
    unit: str = "short"
    """As Grafana names it."""
    decimals: int | None = None
    steps: tuple[ThresholdStep, ...] = ()
    colour_of: Mapping[str, str] = Field(default_factory=dict)
    """Colours of series by how their names begin; lines begin with their role."""
    states: Mapping[float, ValueMapping] = Field(default_factory=dict)
    low: float | None = None
    high: float | None = None
    banded: bool = False
    """The colours of `steps` lie behind the lines as bands; else they are drawn as dashed lines."""
    stepped: bool = False
    """A value holds until the next one: drawn as stairs."""
    colours: Colours = Colours.BLUES
    nothing: str = "no data"
    """What it says when there is no series."""

    @property
    def description(self) -> str:
        """As Grafana shows it behind the panel's title."""
        return f"{self.question}\n\n{self.action}"


class PanelRow(Value):
    """Panels under one heading, from left to right; what does not fit begins a new line."""

    title: str
    """Empty: the first screen, which needs no heading."""
    panels: tuple[Panel, ...] = Field(min_length=1)


class Dashboard(Value):
    """One page of Grafana."""

    uid: str = Field(max_length=40)
    """Names it in links; 40 characters are Grafana's limit."""
    title: str
    description: str
    service: str
    """Whose SLOs it shows."""
    since: str
    """How far back it looks, such as `1h`."""
    rows: tuple[PanelRow, ...]

    @property
    def panels(self) -> Iterator[Panel]:
        """All of them, as they are read."""
        for row in self.rows:
            yield from row.panels


class GridPosition(Value):
    """Where a panel stands in the grid, in columns and lines from the upper left corner."""

    x: int
    y: int
    width: int
    height: int
