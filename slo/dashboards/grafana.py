"""A dashboard as the JSON that Grafana imports: the same dashboard is the same bytes.

`grafana.json` has what all dashboards, panels and panels of a kind have in common, in Grafana's own words.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from string import ascii_uppercase

from slo.dashboards.fill import COLUMNS, SELECTORS, Dashboard, Panel, fill, template
from slo.metrics import SERVICE
from tidegate.core.model import Json

ROLE_COLOURS = {"stable": "blue", "canary": "orange", "shadow": "purple", "previous": "#8e8e8e"}
"""The same on every panel of every dashboard; regions are shades of them."""

_MOMENT = {"stat", "gauge", "bargauge"}
"""Kinds that show the last value and nothing before it."""


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
        "panels": [{**part, "id": number} for number, part in enumerate(_parts(dashboard, common), start=1)],
    }
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _parts(dashboard: Dashboard, common: Json) -> Iterator[Json]:
    """Headings and panels in the order in which they are read, nothing on top of anything."""
    y = 0
    for title, lines in dashboard.rows:
        if title:
            yield {**common["row"], "title": title, "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1}}
            y += 1
        for line in lines:
            x = 0
            for panel in line:
                yield {**_part(panel, common), "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height}}
                x += panel.width
            y += max(panel.height for panel in line)


def _part(panel: Panel, common: Json) -> Json:
    kind = fill(common["kinds"][panel.kind], {"colours": panel.colours, "unit": panel.unit})
    source, moment = common["panel"]["datasource"], panel.kind in _MOMENT
    return {
        **common["panel"],
        "type": panel.kind,
        "title": panel.title,
        "description": f"{panel.question}\n\n{panel.action}",
        "options": kind["options"],
        "fieldConfig": {
            "defaults": {**kind["defaults"], **_field(panel, kind["defaults"])},
            "overrides": _colours(ROLE_COLOURS if panel.kind == "timeseries" else panel.colour_of),
        },
        "targets": [
            {
                "datasource": source,
                "refId": letter,
                "expr": query.expr,
                "legendFormat": query.legend,
                "format": "heatmap" if query.heat else "time_series",
                "instant": moment,
                "range": not moment,
            }
            for query, letter in zip(panel.queries, ascii_uppercase, strict=False)
        ],
    }


def _field(panel: Panel, usual: Json) -> Json:
    """What the kind does not say of the values: unit, range, thresholds, words; only what is set."""
    # Grafana draws thresholds only where there is a colour for the lowest value.
    steps = [{"color": colour, "value": since} for colour, since in panel.steps or (("green", None),)]
    style: Json = {"lineInterpolation": "stepAfter"} if panel.stepped else {}
    if panel.steps and panel.kind == "timeseries":
        style["thresholdsStyle"] = {"mode": "area" if panel.banded else "dashed"}
    words = {
        f"{value:g}": {"text": state["word"], "color": state["colour"], "index": index}
        for index, (value, state) in enumerate(panel.states.items())
    }
    mappings = [{"type": "value", "options": words}] if words else None
    said = {"decimals": panel.decimals, "min": panel.low, "max": panel.high, "mappings": mappings}
    return {
        "unit": panel.unit,
        "noValue": panel.nothing,
        "thresholds": {"mode": "absolute", "steps": steps},
        **({"custom": {**usual["custom"], **style}} if style else {}),
        **{key: value for key, value in said.items() if value is not None},
    }


def _colours(by_beginning: Mapping[str, str]) -> list[Json]:
    """Of series by how their names begin."""
    return [
        {
            "matcher": {"id": "byRegexp", "options": f"/^{beginning}/"},
            "properties": [{"id": "color", "value": {"mode": "shades", "fixedColor": colour}}],
        }
        for beginning, colour in by_beginning.items()
    ]
