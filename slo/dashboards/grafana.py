"""A service's dashboards, filled from this folder's files, as the JSON that Grafana imports.

A file has a title, a description, how far back it looks (`since`), and rows: a title, empty for the first screen, and
lines of panels. A panel is one `question` to Prometheus, and an `action`: what to do when the answer looks bad. Its
`kind` is Grafana's name; its `queries` have PromQL over the dashboard's variables, a `legend`, and `heat` where they
give cumulative buckets by `le`. Besides it may have `width` and `height` on Grafana's
grid, `unit`, `decimals`, `low`, `high`; `steps`, colours and the values from which on they hold, `banded` where they
lie behind the lines as bands; `colour_of` series by how their names begin; `states`, a `word` and a `colour` for a
number; `stepped`, to be drawn as stairs; `colours` of a heat map; `nothing`, what it says without a series. In a line,
panels without a width share what the others leave of it, and those without a height are as high as the first.

A text may hold placeholders: `<of_users>` is a selector, `<ttft>` a number that an SLO sets. A text that is nothing but
a placeholder becomes the value itself, so a threshold becomes a number. `when` and `unless` name a value with or
without which a row or a panel is left out. Thresholds of which a value is unknown are not drawn, and `line`, a sentence
about them, ends the panel's question only where they are.

`grafana.json` has what all dashboards, panels and panels of a kind have in common, in Grafana's own words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from string import ascii_uppercase
from typing import Any

from slo.metrics import SERVICE, TTFT
from slo.promql import series_of
from slo.rules import SLOTH_SERVICE
from slo.signals import signal_groups
from slo.spec import CostSpec, CountedBy, SloSpec, edge_label
from tidegate.core.metrics import MetricSource
from tidegate.core.model import Json

COLUMNS = 24
"""Of Grafana's grid."""
ROLE_COLOURS = {"stable": "blue", "canary": "orange", "shadow": "purple", "previous": "#8e8e8e"}
"""The same on every panel of every dashboard; regions are shades of them."""
_MOMENT = {"stat", "gauge", "bargauge"}
"""Kinds that show the last value and nothing before it."""

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
_VARIABLE = re.compile(r"\$(\w+)")


def dashboards_of(
    slos: Sequence[SloSpec],
    *,
    service: str,
    cost: CostSpec | None = None,
    counted_by: CountedBy = CountedBy.PROXY,
    sources: Sequence[MetricSource] = (),
) -> tuple[Json, ...]:
    """L1 on-call, L2 ML engineering and L3 cost, as their files have them; the lines in them are what `slos` promise.

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
    }
    if not all(source.names_roles for source in sources):
        # Values that are versions do not say who is the canary.
        values |= {"of_users": SELECTORS["seen"]}
    made = signal_groups(service=service, counted_by=counted_by, cost=cost, sources=sources)
    recorded = {rule.record for group in made for rule in group.rules}

    def is_told(query: Json) -> bool:
        read = series_of(_VARIABLE.sub(r"\1", query["expr"])) if sources else ()
        return all(name in recorded for name in read if name.startswith("tidegate:"))

    # The same at every export, so that links and bookmarks keep.
    short = service if len(service) <= _LONGEST_NAME else f"{service[:17]}-{sha256(service.encode()).hexdigest()[:8]}"
    boards = ((level, fill(template(level), values)) for level in LEVELS)
    return tuple(
        {**board, "uid": f"{short}-{level}", "service": service, "rows": list(_rows(board["rows"], is_told))}
        for level, board in boards
    )


def _rows(rows: Sequence[Json], is_told: Callable[[Json], bool]) -> Iterator[Json]:
    """With every panel's size, and without what has nothing to show."""
    for row in rows:
        lines = []
        for line in filter(None, row["lines"]):
            open_ended = [panel for panel in line if "width" not in panel]
            left = COLUMNS - sum(panel.get("width", 0) for panel in line)
            size = {"height": line[0]["height"], "width": left // max(len(open_ended), 1)}
            panels = [{**size, **_panel(panel), "queries": list(filter(is_told, panel["queries"]))} for panel in line]
            lines.append([panel for panel in panels if panel["queries"]])
        if any(lines):
            yield {**row, "lines": list(filter(None, lines))}


def _panel(panel: Json) -> Json:
    """With thresholds only where all their values are known."""
    steps, about = panel.get("steps", []), panel.get("line", "")
    if any(None in step for step in steps):
        return {**panel, "steps": []}
    steps = [(*step, None)[:2] for step in steps]
    return {**panel, "steps": steps, "question": f"{panel['question']} {about}".rstrip()}


def panels_of(dashboard: Json) -> Iterator[Json]:
    """All panels of one of `dashboards_of`, as they are read."""
    for row in dashboard["rows"]:
        for line in row["lines"]:
            yield from line


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


def dashboard_json(dashboard: Json, siblings: Sequence[Json] = ()) -> str:
    """One file for Grafana; `siblings` are the dashboards that its links lead to, itself left out."""
    common = template("grafana")
    document = {
        **fill(common["dashboard"], {**SELECTORS, SERVICE: dashboard["service"]}),
        "uid": dashboard["uid"],
        "title": dashboard["title"],
        "description": dashboard["description"],
        "time": {"from": f"now-{dashboard['since']}", "to": "now"},
        "links": [
            {**common["link"], "title": other["title"], "tooltip": other["description"], "url": f"/d/{other['uid']}"}
            for other in siblings
            if other["uid"] != dashboard["uid"]
        ],
        "panels": [{**part, "id": number} for number, part in enumerate(_parts(dashboard, common), start=1)],
    }
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _parts(dashboard: Json, common: Json) -> Iterator[Json]:
    """Headings and panels in the order in which they are read, nothing on top of anything."""
    y = 0
    for row in dashboard["rows"]:
        if row["title"]:
            yield {**common["row"], "title": row["title"], "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1}}
            y += 1
        for line in row["lines"]:
            x = 0
            for panel in line:
                yield {**_part(panel, common), "gridPos": {"x": x, "y": y, "w": panel["width"], "h": panel["height"]}}
                x += panel["width"]
            y += max(panel["height"] for panel in line)


def _part(panel: Json, common: Json) -> Json:
    unit, moment = panel.get("unit", "short"), panel["kind"] in _MOMENT
    kind = fill(common["kinds"][panel["kind"]], {"colours": panel.get("colours", "Blues"), "unit": unit})
    return {
        **common["panel"],
        "type": panel["kind"],
        "title": panel["title"],
        "description": f"{panel['question']}\n\n{panel['action']}",
        "options": kind["options"],
        "fieldConfig": {
            "defaults": {**kind["defaults"], "unit": unit, **_field(panel, kind["defaults"])},
            "overrides": [
                {
                    "matcher": {"id": "byRegexp", "options": f"/^{beginning}/"},
                    "properties": [{"id": "color", "value": {"mode": "shades", "fixedColor": colour}}],
                }
                for beginning, colour in (
                    ROLE_COLOURS if panel["kind"] == "timeseries" else panel.get("colour_of", {})
                ).items()
            ],
        },
        "targets": [
            {
                "datasource": common["panel"]["datasource"],
                "refId": letter,
                "expr": query["expr"],
                "legendFormat": query["legend"],
                "format": "heatmap" if query.get("heat") else "time_series",
                "instant": moment,
                "range": not moment,
            }
            for query, letter in zip(panel["queries"], ascii_uppercase, strict=False)
        ],
    }


def _field(panel: Json, usual: Json) -> Json:
    """What the kind does not say of the values: range, thresholds, words; only what is set."""
    # Grafana draws thresholds only where there is a colour for the lowest value.
    steps = [{"color": colour, "value": since} for colour, since in panel.get("steps") or [("green", None)]]
    style: Json = {"lineInterpolation": "stepAfter"} if panel.get("stepped") else {}
    if panel.get("steps") and panel["kind"] == "timeseries":
        style["thresholdsStyle"] = {"mode": "area" if panel.get("banded") else "dashed"}
    words = {
        f"{float(value):g}": {"text": state["word"], "color": state["colour"], "index": index}
        for index, (value, state) in enumerate(panel.get("states", {}).items())
    }
    mappings = [{"type": "value", "options": words}] if words else None
    said = {"decimals": panel.get("decimals"), "min": panel.get("low"), "max": panel.get("high"), "mappings": mappings}
    return {
        "noValue": panel.get("nothing", "no data"),
        "thresholds": {"mode": "absolute", "steps": steps},
        **({"custom": {**usual["custom"], **style}} if style else {}),
        **{key: value for key, value in said.items() if value is not None},
    }
