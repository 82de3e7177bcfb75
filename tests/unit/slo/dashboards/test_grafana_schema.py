"""What we write is what Grafana's own types say, old and new: no key more, no value of another kind."""

from __future__ import annotations

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
