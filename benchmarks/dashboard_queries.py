"""Which queries of the dashboards have data in a running Prometheus, and what the others wait for, as JSON.

    .venv/bin/python -m benchmarks.dashboard_queries http://127.0.0.1:9090 examples/demo/delivery.yaml

Every query is asked over the last minutes for all regions and versions, as Grafana would ask it when somebody
opens the dashboard. A query without data is listed with what its panel says
then; one that Prometheus refuses is an error.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from string import Template
from typing import Any

import httpx

from pipelines.adapters.specs import read_delivery
from slo.dashboards.grafana import ANYTHING, dashboards_of, panels_of
from tidegate.core.model import Json

STEP = "10s"
"""As often as rules of the local fleet are evaluated."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Ask a Prometheus every query of the dashboards.")
    parser.add_argument("prometheus", help="its address")
    parser.add_argument("spec", type=Path, help="the delivery whose dashboards they are")
    parser.add_argument("--minutes", type=float, default=30, help="how far back to look")
    arguments = parser.parse_args()
    spec = read_delivery(arguments.spec)
    asked = Asked(arguments.prometheus, arguments.minutes)
    dashboards = dashboards_of(spec.slos, service=spec.metadata.name, cost=spec.cost)
    answers = [answer for dashboard in dashboards for answer in asked.all_of(dashboard)]
    empty = [answer for answer in answers if not answer["series"]]
    panels = {(answer["dashboard"], answer["panel"]) for answer in answers}
    print(
        json.dumps(
            {
                "panels": len(panels),
                "panels_with_data": len({(each["dashboard"], each["panel"]) for each in answers if each["series"]}),
                "queries": len(answers),
                "queries_with_data": len(answers) - len(empty),
                "without_data": [
                    {key: each[key] for key in ("dashboard", "panel", "legend", "nothing")} for each in empty
                ],
                "answers": answers,
            },
            indent=2,
            ensure_ascii=False,
        )
    )


class Asked:
    """A Prometheus, over the last minutes."""

    def __init__(self, prometheus: str, minutes: float) -> None:
        """Now is when it is made: every query is about the same time."""
        self._prometheus = prometheus
        self._end = datetime.now(UTC)
        self._start = self._end - timedelta(minutes=minutes)

    def all_of(self, dashboard: Json) -> Iterator[dict[str, Any]]:
        """What each query of a dashboard gives: the number of series, of their samples, and the last values."""
        for panel in panels_of(dashboard):
            for query in panel["queries"]:
                result = self._ask(query["expr"], dashboard["service"])
                samples = [value for series in result for _, value in series["values"]]
                yield {
                    "dashboard": dashboard["title"],
                    "panel": panel["title"],
                    "legend": query["legend"],
                    "nothing": panel.get("nothing", "no data"),
                    "series": len(result),
                    "samples": len(samples),
                    "not_a_number": samples.count("NaN"),
                    "last": sorted(float(series["values"][-1][1]) for series in result)[:4],
                }

    def _ask(self, query: str, service: str) -> list[dict[str, Any]]:
        # Template leaves alone what is no variable of ours, such as the `$1` of label_replace.
        expr = Template(query).safe_substitute(service=service, region=ANYTHING, version=ANYTHING)
        asked = {"query": expr, "start": self._start.timestamp(), "end": self._end.timestamp(), "step": STEP}
        answer = httpx.get(f"{self._prometheus}/api/v1/query_range", params=asked, timeout=30, trust_env=False)
        found: list[dict[str, Any]] = answer.raise_for_status().json()["data"]["result"]
        return found


if __name__ == "__main__":
    main()
