"""What we write is what Grafana's own types say, old and new: no key more, no value of another kind."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from fakes.metrics.slos import COST, SLOS

from slo.dashboards import dashboard_json, dashboards_of

SCHEMAS = {
    path.stem.removeprefix("schema-"): jsonschema_rs.Draft7Validator(json.loads(path.read_text(encoding="utf-8")))
    for path in sorted(Path(__file__).parent.joinpath("grafana").glob("schema-*.json"))
}
ALL = (dashboards_of(SLOS, service="chat", cost=COST), dashboards_of([], service="chat"))
WRITTEN = [json.loads(dashboard_json(one, level)) for level in ALL for one in level]


def complaints(version: str, dashboard: dict[str, Any]) -> list[str]:
    return [f"{error.instance_path}: {error.message[-200:]}" for error in SCHEMAS[version].iter_errors(dashboard)]


@pytest.mark.parametrize("version", ["10.1.9", "13.2.3"])
def test_every_dashboard_fits_the_types_of_grafana(version: str) -> None:
    assert [complaint for dashboard in WRITTEN for complaint in complaints(version, dashboard)] == []


@pytest.mark.parametrize("version", ["10.1.9", "13.2.3"])
@pytest.mark.parametrize(
    ("where", "wrong"),
    [
        ((), {"stile": "dark"}),
        ((), {"schemaVersion": "36"}),
        (("panels", 0, "options"), {"colourMode": "background"}),
        (("panels", 0, "options"), {"colorMode": "bright"}),
        (("panels", 0, "fieldConfig", "defaults", "thresholds"), {"mode": "relative"}),
        (("panels", 0, "gridPos"), {"w": "9"}),
        (("panels", 0, "targets", 0), {"query": "up"}),
        (("templating", "list", 1), {"refresh": 7}),
        (("annotations", "list", 0), {"expr": "ALERTS"}),
    ],
)
def test_the_schemas_see_what_is_wrong(version: str, where: tuple[str | int, ...], wrong: dict[str, object]) -> None:
    dashboard = copy.deepcopy(WRITTEN[0])
    part: Any = dashboard
    for step in where:
        part = part[step]
    part.update(wrong)
    assert complaints(version, dashboard)


def test_a_version_of_grafana_is_known_by_its_schema() -> None:
    assert list(SCHEMAS) == ["10.1.9", "13.2.3"]
