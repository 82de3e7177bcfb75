"""A dashboard as the JSON that Grafana imports: the same dashboard is the same bytes.

`grafana.json` has what all dashboards, panels and panels of a kind have in common, in Grafana's own words.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from string import ascii_uppercase

from slo.dashboards.fill import SELECTORS, fill, template
from slo.dashboards.model import COLUMNS, Dashboard, GridPosition, Panel, PanelKind, PanelRow, Query
from slo.metrics import SERVICE
from tidegate.core.model import Json

ROLE_COLOURS = {"stable": "blue", "canary": "orange", "shadow": "purple", "previous": "#8e8e8e"}
"""The same on every panel of every dashboard; regions are shades of them."""

_MOMENT = {PanelKind.TILES, PanelKind.DIAL, PanelKind.BARS}
"""Kinds that show the last value and nothing before it."""
_HEADING = 1
"""Lines that the title of a row takes."""


def dashboard_json(dashboard: Dashboard, siblings: Sequence[Dashboard] = ()) -> str:
    """One file for Grafana; `siblings` are the dashboards that its links lead to, itself left out."""
    common = template("grafana")
    document = {
        **fill(common["dashboard"], {**SELECTORS, SERVICE: dashboard.service}),
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "time": {"from": f"now-{dashboard.since}", "to": "now"},
        "links": [
            {**common["link"], "title": other.title, "tooltip": other.description, "url": f"/d/{other.uid}"}
            for other in siblings
            if other.uid != dashboard.uid
        ],
        "panels": [
            {**_part(part, common), "id": number, "gridPos": {"x": at.x, "y": at.y, "w": at.width, "h": at.height}}
            for number, (part, at) in enumerate(grid_positions(dashboard.rows), start=1)
        ],
    }
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def grid_positions(rows: tuple[PanelRow, ...]) -> Iterator[tuple[PanelRow | Panel, GridPosition]]:
    """Headings and panels in the order in which they are read, nothing on top of anything."""
    y = 0
    for row in rows:
        if row.title:
            yield row, GridPosition(x=0, y=y, width=COLUMNS, height=_HEADING)
            y += _HEADING
        for line in _lines(row.panels):
            x = 0
            for panel in line:
                yield panel, GridPosition(x=x, y=y, width=panel.width, height=panel.height)
                x += panel.width
            y += max(panel.height for panel in line)


def _lines(panels: tuple[Panel, ...]) -> Iterator[list[Panel]]:
    line: list[Panel] = []
    for panel in panels:
        if line and sum(each.width for each in line) + panel.width > COLUMNS:
            yield line
            line = []
        line.append(panel)
    yield line


def _part(part: PanelRow | Panel, common: Json) -> Json:
    if isinstance(part, PanelRow):
        return {**common["row"], "title": part.title}
    kind = fill(common["kinds"][part.kind], {"colours": part.colours, "unit": part.unit})
    source = common["panel"]["datasource"]
    return {
        **common["panel"],
        "type": part.kind,
        "title": part.title,
        "description": part.description,
        "options": kind["options"],
        "fieldConfig": {
            "defaults": {**kind["defaults"], **_field(part, kind["defaults"])},
            "overrides": _colours(part),
        },
        "targets": [
            {"datasource": source, "refId": letter, **_target(query, part.kind)}
            for query, letter in zip(part.queries, ascii_uppercase, strict=False)
        ],
    }


def _field(panel: Panel, usual: Json) -> Json:
    """What the kind does not say of the values: unit, range, thresholds, words; only what is set."""
    # Grafana draws thresholds only where there is a colour for the lowest value.
    steps = [{"color": step.colour, "value": step.since} for step in panel.steps] or [{"color": "green", "value": None}]
    style: Json = {"lineInterpolation": "stepAfter"} if panel.stepped else {}
    if panel.steps and panel.kind is PanelKind.LINES:
        style["thresholdsStyle"] = {"mode": "area" if panel.banded else "dashed"}
    said = {"decimals": panel.decimals, "min": panel.low, "max": panel.high, "mappings": _mappings(panel)}
    return {
        "unit": panel.unit,
        "noValue": panel.nothing,
        "thresholds": {"mode": "absolute", "steps": steps},
        **({"custom": {**usual["custom"], **style}} if style else {}),
        **{key: value for key, value in said.items() if value is not None},
    }


def _mappings(panel: Panel) -> list[Json] | None:
    words = {
        f"{value:g}": {"text": state.word, "color": state.colour, "index": index}
        for index, (value, state) in enumerate(panel.states.items())
    }
    return [{"type": "value", "options": words}] if words else None


def _colours(panel: Panel) -> list[Json]:
    """Of series by how their names begin."""
    colours = ROLE_COLOURS if panel.kind is PanelKind.LINES else panel.colour_of
    return [
        {
            "matcher": {"id": "byRegexp", "options": f"/^{beginning}/"},
            "properties": [{"id": "color", "value": {"mode": "shades", "fixedColor": colour}}],
        }
        for beginning, colour in colours.items()
    ]


def _target(query: Query, kind: PanelKind) -> Json:
    moment = kind in _MOMENT
    shape = "heatmap" if query.heat else "time_series"
    asked = {"expr": query.expr, "legendFormat": query.legend, "format": shape}
    return {**asked, "instant": moment, "range": not moment}
