from __future__ import annotations

import json
from typing import Any

import pytest
from fakes.metrics.slos import COST, SLOS

from slo.dashboards import Dashboard, dashboard_json, dashboards_of
from slo.dashboards.model import Colours, Panel, PanelKind

ON_CALL, ENGINEERING, MONEY = dashboards_of(SLOS, service="chat", cost=COST)
LEVELS = (ON_CALL, ENGINEERING, MONEY)


def written(dashboard: Dashboard) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(dashboard_json(dashboard, LEVELS))
    return found


def panel(dashboard: Dashboard, title: str) -> Panel:
    return next(found for found in dashboard.panels if found.title == title)


def colours(found: Panel) -> list[tuple[float | None, str]]:
    return [(step.since, step.colour) for step in found.steps]


def test_a_service_has_three_levels_with_addresses_that_keep() -> None:
    assert [level.uid for level in LEVELS] == ["chat-l1-on-call", "chat-l2-ml", "chat-l3-cost"]


def test_long_names_of_services_have_short_addresses_of_their_own() -> None:
    uids = {level.uid for name in ("a" * 60, "a" * 61, "b" * 26) for level in dashboards_of([], service=name)}
    assert len(uids) == 9
    assert max(map(len, uids)) <= 40


def test_each_level_leads_to_the_two_others_with_what_was_chosen() -> None:
    for level in LEVELS:
        links = written(level)["links"]
        assert {link["url"] for link in links} == {f"/d/{other.uid}" for other in LEVELS} - {f"/d/{level.uid}"}
        assert all(link["includeVars"] and link["keepTime"] for link in links)


def test_the_service_is_there_from_the_start_and_nobodys_choice() -> None:
    for level in LEVELS:
        _, service, *_ = written(level)["templating"]["list"]
        assert (service["type"], service["query"], service["hide"]) == ("custom", "chat", 2)
        assert service["current"]["value"] == service["options"][0]["value"] == "chat"


def test_every_panel_asks_a_question_and_says_what_to_do() -> None:
    for level in LEVELS:
        for found in level.panels:
            assert "?" in found.question, found.title
            assert found.action.endswith("."), found.title


def test_a_failing_region_is_red_before_anything_else_is_read() -> None:
    first = next(iter(ON_CALL.panels))
    assert (first.kind, colours(first)[1:]) == (PanelKind.TILES, [(0, "green"), (1, "yellow"), (6, "red")])


def test_lines_are_where_the_slos_have_them() -> None:
    assert colours(panel(ON_CALL, "Share of requests that fail"))[-1] == (pytest.approx(0.001), "red")
    assert colours(panel(ON_CALL, "Time to first token, p50 and p95"))[-1] == (0.25, "red")
    assert colours(panel(ON_CALL, "KV cache in use"))[-1] == (0.9, "red")
    assert colours(panel(ENGINEERING, "Composite quality")) == [
        (None, "red"),
        (0.8, "yellow"),
        (pytest.approx(0.85), "green"),
    ]


def test_composite_quality_and_gpus_have_bands_and_others_lines() -> None:
    styles = {
        found["title"]: found["fieldConfig"]["defaults"]["custom"]["thresholdsStyle"]["mode"]
        for level in LEVELS
        for found in written(level)["panels"]
        if "thresholdsStyle" in found.get("fieldConfig", {}).get("defaults", {}).get("custom", {})
    }
    assert {title for title, style in styles.items() if style == "area"} == {"Composite quality", "GPU utilisation"}
    assert styles["Share of requests that fail"] == "dashed"


def test_the_heat_map_is_cut_at_the_line_of_the_slo() -> None:
    beyond, within = (found for found in ON_CALL.panels if found.kind is PanelKind.HEAT)
    assert (beyond.colours, within.colours) == (Colours.REDS, Colours.BLUES)
    assert 'le=~"0[.]5|0[.]75|1[.]0' in beyond.queries[0].expr
    assert beyond.queries[0].expr.endswith('le="0.25"})')
    assert 'le=~"0[.]001|' in within.queries[0].expr
    assert within.queries[0].expr.endswith('|0[.]25"})')


def test_without_a_price_there_is_no_panel_of_money() -> None:
    assert MONEY.rows[0].title == "Money"
    assert "Money" not in [row.title for row in dashboards_of(SLOS, service="chat")[2].rows]
