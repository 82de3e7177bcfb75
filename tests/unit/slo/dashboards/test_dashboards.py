"""Dashboards fit Grafana's types, ask for what is exported or recorded, and have the lines that SLOs set."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from fakes.metrics.slos import COST, SLOS

from slo.dashboards.grafana import LEVELS, SELECTORS, dashboard_json, dashboards_of, panels_of, template
from tidegate.core.model import Json

ALL = ON_CALL, ENGINEERING, MONEY = dashboards_of(SLOS, service="chat", cost=COST)
PAGE = (Path(__file__).parents[4] / "docs/guides/dashboards.md").read_text(encoding="utf-8")
SCHEMAS = Path(__file__).parent / "grafana"
PANELS = [panel for level in ALL for panel in panels_of(level)]


def written(level: Json) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(dashboard_json(level, ALL))
    return found


def panel(level: Json, title: str) -> Json:
    return next(found for found in panels_of(level) if found["title"] == title)


@pytest.mark.parametrize("version", ["10.1.9", "13.2.3"])
def test_every_dashboard_fits_the_types_of_grafana(version: str) -> None:
    """No key more, no value of another kind."""
    schema = jsonschema_rs.Draft7Validator(json.loads((SCHEMAS / f"schema-{version}.json").read_text("utf-8")))
    for level in (*ALL, *dashboards_of([], service="chat")):
        assert [f"{error.instance_path}: {error.message[-200:]}" for error in schema.iter_errors(written(level))] == []


def test_no_panel_stands_on_another_or_next_to_the_grid() -> None:
    for level in ALL:
        places = [each["gridPos"] for each in written(level)["panels"]]
        assert all(at["x"] + at["w"] <= 24 for at in places)
        for one, other in combinations(places, 2):
            beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
            assert beside or one["y"] + one["h"] <= other["y"]


def test_the_page_has_every_panel_with_its_question_and_what_to_do() -> None:
    rows = re.findall(r"^\| (?!panel \|)([^|]+) \| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)
    assert rows == [(panel["title"], panel["question"], panel["action"]) for panel in PANELS]


def test_long_names_of_services_have_short_addresses_of_their_own() -> None:
    uids = {level["uid"] for name in ("a" * 60, "a" * 61, "b" * 26) for level in dashboards_of([], service=name)}
    assert len(uids) == 9
    assert max(map(len, uids)) <= 40


@pytest.mark.parametrize("level", LEVELS)
def test_no_limit_of_a_service_is_written_into_a_file(level: str) -> None:
    assert not re.search(r'service="|\ble=~?\\"[^<]', json.dumps(template(level)))


def test_lines_are_where_the_slos_have_them() -> None:
    assert panel(ON_CALL, "Share of requests that fail")["steps"][-1] == ("red", pytest.approx(0.001))
    assert panel(ON_CALL, "Time to first token, p50 and p95")["steps"][-1] == ("red", 0.25)
    assert panel(ENGINEERING, "Composite quality")["steps"] == [
        ("red", None),
        ("yellow", 0.8),
        ("green", pytest.approx(0.85)),
    ]
    beyond, within = (found["queries"][0]["expr"] for found in panels_of(ON_CALL) if found["kind"] == "heatmap")
    assert 'le=~"0[.]5|0[.]75|1[.]0' in beyond and beyond.endswith('le="0.25"})')
    assert 'le=~"0[.]001|' in within and within.endswith('|0[.]25"})')


def test_without_a_price_nothing_is_asked_about_money() -> None:
    assert MONEY["rows"][0]["title"] == "Money"
    unpriced = [panel for level in dashboards_of(SLOS, service="chat") for panel in panels_of(level)]
    assert not [query for panel in unpriced for query in panel["queries"] if "cost" in query["expr"]]


VARIABLES = [each["query"] for each in written(ON_CALL)["templating"]["list"] if each["type"] == "query"]


def test_no_query_sees_other_services() -> None:
    for query in (*(query["expr"] for panel in PANELS for query in panel["queries"]), SELECTORS["firing"], *VARIABLES):
        asked, told = len(re.findall(r"\b(?:tidegate[:_]|slo:|ALERTS)", query)), query.count('service="$service"')
        assert asked == told > 0, query
