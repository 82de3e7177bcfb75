"""Fills the dashboards' files with a service's SLOs: the lines, colours and panels that they bring along.

A text of a file may hold placeholders: `<of_users>` is a selector, `<ttft>` a number that an SLO sets. A text that is
nothing but a placeholder becomes the value itself, so a threshold becomes a number. `when` and `unless` name a value
with or without which a row or a panel is left out. Thresholds of which a value is unknown are not drawn, and `line`,
a sentence about them, ends the panel's question only where they are. In a line of panels, those without a width share
what the others leave of it, and those without a height are as high as the first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import Any

from pydantic import Field

from slo.metrics import SERVICE, TTFT
from slo.promql import series_of
from slo.rules import SLOTH_SERVICE
from slo.signals import signal_groups
from slo.spec import CostSpec, CountedBy, SloSpec, edge_label
from tidegate.core.metrics import MetricSource
from tidegate.core.model import Json, Value

COLUMNS = 24
"""Of Grafana's grid."""


class Query(Value):
    """One PromQL expression over the dashboard's variables, and how its series are named."""

    expr: str
    legend: str
    needs: str = "users who ask"
    """What must be there for it to have data; the words end the sentence `it needs ...`."""
    heat: bool = False
    """Cumulative buckets by `le`, to be drawn as a heat map."""


class Panel(Value):
    """One question to Prometheus, and what the answer asks of the one who reads it."""

    title: str
    kind: str
    """Grafana's name: `stat`, `timeseries`, `heatmap`, `gauge`, `bargauge` or `state-timeline`."""
    question: str
    action: str
    """What to do when it looks bad."""
    queries: tuple[Query, ...] = Field(min_length=1, max_length=26)
    width: int = Field(gt=0, le=COLUMNS)
    height: int = Field(gt=0)
    unit: str = "short"
    """As Grafana names it."""
    decimals: int | None = None
    steps: tuple[tuple[str, float | None], ...] = ()
    """Colours, and the values from which on they hold; None for the lowest."""
    colour_of: Mapping[str, str] = Field(default_factory=dict)
    """Colours of series by how their names begin; lines begin with their role."""
    states: Mapping[float, Mapping[str, str]] = Field(default_factory=dict)
    """What a number means: a `word` and a `colour`."""
    low: float | None = None
    high: float | None = None
    banded: bool = False
    """The colours of `steps` lie behind the lines as bands; else they are drawn as dashed lines."""
    stepped: bool = False
    """A value holds until the next one: drawn as stairs."""
    colours: str = "Blues"
    """Of a heat map's cells: `Blues` or `Reds`."""
    nothing: str = "no data"
    """What it says when there is no series."""


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
    rows: tuple[tuple[str, tuple[tuple[Panel, ...], ...]], ...]
    """The title of each, empty for the first screen, and its panels line by line."""

    @property
    def panels(self) -> Iterator[Panel]:
        """All of them, as they are read."""
        for _, lines in self.rows:
            for line in lines:
                yield from line


Values = Mapping[str, float | str | None]
"""By placeholder; None where nobody has said."""

LEVELS = ("l1-on-call", "l2-ml", "l3-cost")
"""The files, and the ends of the dashboards' uids."""
ANYTHING = ".*"
"""What a variable stands for when nothing is chosen: series without the label are seen, too."""

_OF_SERVICE = f'{SERVICE}="${SERVICE}"'
_IN_REGION = f'{_OF_SERVICE}, region=~"$region"'
_SEEN = f'{_IN_REGION}, version=~"$version"'
_OF_SLOS = f'{SLOTH_SERVICE}="${SERVICE}", region=~"$region"'
SELECTORS = {
    # Of the series of several deliveries in one Prometheus, those of the dashboard's own.
    "of_service": _OF_SERVICE,
    "in_region": _IN_REGION,
    # What the dashboard's variables let through.
    "seen": _SEEN,
    # Without copies of requests, whose answers nobody sees.
    "of_users": f'role=~"stable|canary", {_SEEN}',
    # What the rules of SLOs record says the service in Sloth's own way.
    "of_slos": _OF_SLOS,
    "firing": f'ALERTS{{alertstate="firing", {_OF_SLOS}}}',
    "arm": "region, role, version",
    # The role first: a series gets its colour by it.
    "arm_legend": "{{role}} {{version}} · {{region}}",
    "anything": ANYTHING,
}

_LONGEST_NAME = 26
"""Of a service in a uid: Grafana's are 40 characters at most."""
_PAGING = 6
"""Times the sustainable burn rate: the slower of the two that page, over 30 days."""
_LONGEST_TTFT = 40
"""Seconds; what takes longer is in the topmost cells of the heat map."""
_PLACEHOLDER = re.compile(r"<([a-z][a-z0-9_]*)>")


def dashboards_of(
    slos: Sequence[SloSpec],
    *,
    service: str,
    cost: CostSpec | None = None,
    counted_by: CountedBy = CountedBy.PROXY,
    sources: Sequence[MetricSource] = (),
) -> tuple[Dashboard, ...]:
    """L1 on-call, L2 ML engineering and L3 cost; the lines in them are what `slos` promise.

    `service`, `counted_by` and `sources` are those with which the rules of these SLOs and of the signals were made.
    Of sources that do not tell something, there is no panel of it.
    """
    limits = _limits(slos)
    values: dict[str, float | str | None] = {
        **SELECTORS,
        **_reactions(limits),
        **_buckets(limits.get("ttft")),
        **_money(cost),
        SERVICE: service,
        # Only a proxy of ours counts users who ask again.
        "regenerations": 1 if counted_by is CountedBy.PROXY and not sources else None,
    }
    if not all(source.names_roles for source in sources):
        # Values that are versions do not say who is the canary.
        values |= {"of_users": SELECTORS["seen"]}
    levels = (_dashboard(level, service, values) for level in LEVELS)
    if not sources:
        return tuple(levels)
    known = frozenset(
        rule.record
        for group in signal_groups(service=service, counted_by=counted_by, cost=cost, sources=sources)
        for rule in group.rules
    )
    return tuple(_within(level, known) for level in levels)


def _within(dashboard: Dashboard, recorded: Container[str]) -> Dashboard:
    """Without what asks for signals that no rule records."""
    rows = []
    for title, lines in dashboard.rows:
        told = [told for line in lines if (told := tuple(_told(line, recorded)))]
        if told:
            rows.append((title, tuple(told)))
    return dashboard.model_copy(update={"rows": tuple(rows)})


def _told(line: Sequence[Panel], recorded: Container[str]) -> Iterator[Panel]:
    for panel in line:
        if queries := tuple(query for query in panel.queries if _is_told(query, recorded)):
            yield panel.model_copy(update={"queries": queries})


_VARIABLE = re.compile(r"\$(\w+)")


def _is_told(query: Query, recorded: Container[str]) -> bool:
    read = series_of(_VARIABLE.sub(r"\1", query.expr))
    return all(name in recorded for name in read if name.startswith("tidegate:"))


def template(name: str) -> Json:
    """One of the JSON files of this folder."""
    found: Json = json.loads(files("slo.dashboards").joinpath(f"{name}.json").read_text("utf-8"))
    return found


def fill(part: Any, values: Values) -> Any:
    """`part` of a file with values for its placeholders, without what they leave out.

    Raises:
        KeyError: for a placeholder that has no value, not even None.
    """
    if isinstance(part, str):
        whole = _PLACEHOLDER.fullmatch(part)
        return values[whole[1]] if whole else _PLACEHOLDER.sub(lambda found: _text(values[found[1]]), part)
    if isinstance(part, list):
        return [fill(each, values) for each in part if not isinstance(each, dict) or _is_drawn(each, values)]
    if isinstance(part, dict):
        return {key: fill(value, values) for key, value in part.items() if key not in {"when", "unless"}}
    return part


def _dashboard(level: str, service: str, values: Values) -> Dashboard:
    # The same at every export, so that links and bookmarks keep.
    short = service if len(service) <= _LONGEST_NAME else f"{service[:17]}-{sha256(service.encode()).hexdigest()[:8]}"
    file = fill(template(level), values)
    rows = [(row["title"], [_sized(line) for line in row["lines"] if line]) for row in file.pop("rows")]
    return Dashboard.model_validate({**file, "uid": f"{short}-{level}", "service": service, "rows": rows})


def _sized(line: list[Json]) -> list[Json]:
    open_ended = [panel for panel in line if "width" not in panel]
    left = COLUMNS - sum(panel.get("width", 0) for panel in line)
    share = {"width": left // len(open_ended)} if open_ended else {}
    return [{"height": line[0]["height"], **share, **_panel(panel)} for panel in line]


def _panel(panel: Json) -> Json:
    """As the model has it: thresholds only where all their values are known."""
    steps, about = panel.pop("steps", []), panel.pop("line", "")
    if any(None in step for step in steps):
        return panel
    steps = [(*step, None)[:2] for step in steps]
    return {**panel, "steps": steps, "question": f"{panel['question']} {about}".rstrip()}


def _is_drawn(part: Json, values: Values) -> bool:
    with_, without = part.get("when"), part.get("unless")
    return (with_ is None or values[with_] is not None) and (without is None or values[without] is None)


def _text(value: float | str | None) -> str:
    return f"{value:g}" if isinstance(value, float | int) else str(value)


def _limits(slos: Sequence[SloSpec]) -> dict[str, float]:
    """The first of each kind that an SLO sets: of two lines, the one that a person wrote first is drawn."""
    found: dict[str, float] = {}
    for slo in slos:
        for name, within in (("ttft", slo.ttft), ("itl", slo.itl), ("e2e", slo.e2e), ("start", slo.start)):
            if within:
                found.setdefault(name, within.below.total_seconds())
        if slo.errors:
            found.setdefault("bad_share", (100 - slo.objective) / 100)
        if slo.kv_cache:
            found.setdefault("kv_cache", slo.kv_cache.below)
        if slo.quality and slo.quality.dimension == "overall":
            found.setdefault("quality", slo.quality.at_least)
    return found


def _reactions(limits: Mapping[str, float]) -> Values:
    """The limits, and where colours change near them or far beyond; some have a usual value where no SLO sets one."""
    names = ("bad_share", "ttft", "itl", "e2e", "quality", "start")
    failing = limits.get("bad_share", 0.01)
    return {
        **{name: limits.get(name) for name in names},
        "failing": failing,
        "failing_fast": min(1.0, _PAGING * failing),
        "ttft_near": limits["ttft"] * 0.8 if "ttft" in limits else None,
        "kv_cache": limits.get("kv_cache", 0.9),
        "quality_good": limits["quality"] + 0.05 if "quality" in limits else None,
    }


def _buckets(line: float | None) -> Values:
    """Buckets of the heat maps, as regular expressions of `le`.

    Grafana draws no line across a heat map. An SLO's threshold is the edge of a bucket, so there are two maps: what is
    beyond the line, in red, stands on what is within it, in blue; where they meet is the line.
    """
    known = sorted({*TTFT.edges, *([] if line is None else [line])})
    shown = [edge for edge in known if edge <= _LONGEST_TTFT]
    edges: dict[str, str | None] = {"ttft_edges": _any_of([*shown, None])}
    if line is not None:
        edges["ttft_edge"] = edge_label(line)
        edges["ttft_edges_beyond"] = _any_of([*(edge for edge in shown if edge > line), None])
        edges["ttft_edges_within"] = _any_of([edge for edge in known if edge <= line])
    return edges


def _any_of(edges: Sequence[float | None]) -> str:
    """None is the topmost bucket, of whatever takes longer."""
    return "|".join("[+]Inf" if edge is None else edge_label(edge).replace(".", "[.]") for edge in edges)


def _money(cost: CostSpec | None) -> Values:
    """Without a price of engines there are no panels of money: a guess would be believed."""
    budget = cost.budget_per_month if cost else None
    return {
        "cost": cost.per_engine_hour if cost else None,
        "currency": f"currency:{cost.currency} " if cost else None,
        "budget": budget,
        "budget_near": budget * 0.9 if budget else None,
    }
