"""What the queries of panels say, judged by Prometheus itself: those that do more than read a recorded series."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from string import Template

import pytest
from fakes.metrics.slos import COST, SLOS
from fakes.services.prometheus import Series, judged, of_service, tells

from slo.dashboards.grafana import ANYTHING, dashboards_of, panels_of

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Prometheus")

PANELS = {
    (dashboard["uid"].removeprefix("chat-")[:2], panel["title"]): panel
    for dashboard in dashboards_of(SLOS, service="chat", cost=COST)
    for panel in panels_of(dashboard)
}
Values = Mapping[str, float]


def shown(level: str, title: str, query: int = 0) -> str:
    """The query as Grafana asks it when nothing is chosen."""
    return Template(PANELS[level, title]["queries"][query]["expr"]).safe_substitute(
        service="chat", region=ANYTHING, version=ANYTHING
    )


def said(folder: Path, name: str, series: Series, expr: str, values: Values, *, at: str = "10m") -> str:
    """Next to another service with the same series, of which none is seen."""
    everybodys = {**of_service(series, "chat"), **of_service(series, "another")}
    return judged(folder, [], [tells(name, everybodys, {expr: values}, at=at)])


def burn(slo: str, region: str) -> str:
    return f'slo:current_burn_rate:ratio{{sloth_slo="{slo}", region="{region}"}}'


def requests(region: str) -> str:
    return f'tidegate:requests:rate1m{{region="{region}", role="stable", version="6"}}'


def test_the_worst_slo_of_a_region_is_its_health_and_silence_is_no_health(tmp_path: Path) -> None:
    series = {
        burn("availability", "burns"): "0.5x20",
        burn("ttft", "burns"): "20x20",
        requests("burns"): "2x20",
        requests("asleep"): "0x20",
        requests("gone"): "2x4",
        burn("ttft", "gone"): "20x4",
    }
    healths = {'{region="burns"}': 20.0, '{region="asleep"}': -1.0, '{region="gone"}': -1.0}
    assert said(tmp_path, "health", series, shown("l1", "Regions: worst burn rate of any SLO"), healths) == ""


def test_beyond_the_line_only_those_are_counted_who_waited_longer(tmp_path: Path) -> None:
    of_arm = 'region="eu", role="canary", version="7"'
    buckets = {"0.1": 5, "0.25": 8, "0.5": 9, "1.0": 11, "+Inf": 12}
    series = {
        f'tidegate:ttft_seconds_bucket:rate1m{{le="{le}", {of_arm}}}': f"{count}x20" for le, count in buckets.items()
    }
    beyond = shown("l1", "Time to first token: beyond the SLO's line of 0.25 s")
    within = shown("l1", "Time to first token: within the SLO's line of 0.25 s")
    assert said(tmp_path, "beyond", series, beyond, {'{le="0.5"}': 1, '{le="1.0"}': 3, '{le="+Inf"}': 4}) == ""
    assert said(tmp_path, "within", series, within, {'{le="0.1"}': 5, '{le="0.25"}': 8}) == ""


def test_the_canary_is_measured_by_stable_of_its_own_region(tmp_path: Path) -> None:
    signal = "tidegate:ttft_seconds:p95_1m"
    series = {
        f'{signal}{{region="eu", role="stable", version="6"}}': "0.2x20",
        f'{signal}{{region="eu", role="canary", version="7"}}': "0.3x20",
        f'{signal}{{region="us", role="stable", version="6"}}': "0.5x20",
        f'{signal}{{region="us", role="canary", version="7"}}': "0.5x20",
    }
    times = {'{region="eu", version="7"}': 1.5, '{region="us", version="7"}': 1.0}
    assert said(tmp_path, "times", series, shown("l1", "Canary's latency in times of stable's, p95"), times) == ""


def test_only_the_statistic_that_decides_is_measured_by_what_is_allowed(tmp_path: Path) -> None:
    about = 'gate="drift", stage="canary", region="eu", version="7"'
    numbers = {"length_psi": 0.1, "length_psi_by_chance": 0.05, "length_psi_allowed": 0.2, "language_psi": 0.3}
    numbers |= {"language_psi_allowed": 0.2, "length_p_value": 0.5}
    series = {f'tidegate_gate_number{{number="{name}", {about}}}': f"{value}x20" for name, value in numbers.items()}
    where = 'stage="canary", region="eu", version="7"'
    of_allowed = {f'{{number="length_psi", {where}}}': 0.5, f'{{number="language_psi", {where}}}': 1.5}
    title = "Divergence in times of what its gate allows"
    assert said(tmp_path, "allowed", series, shown("l2", title), of_allowed) == ""


def test_money_is_of_all_engines_of_a_region_and_of_the_last_day(tmp_path: Path) -> None:
    series = {
        'tidegate:cost_per_hour:sum{region="eu", role="stable", version="6"}': "3x1500",
        'tidegate:cost_per_hour:sum{region="eu", role="previous", version="5"}': "0.6x1500",
        'tidegate:generation_tokens:rate1m{region="eu", role="stable", version="6"}': "100x1500",
        'tidegate:generation_tokens:rate1m{region="eu", role="previous", version="5"}': "0x1500",
        "tidegate:cost_budget_per_hour:sum": "4.5x1500",
    }
    # 3.60 an hour is 0.001 a second, for 100 tokens.
    thousand = shown("l3", "Cost of 1,000 generated tokens, by region")
    assert said(tmp_path, "tokens", series, thousand, {'{region="eu"}': 0.01}, at="24h") == ""
    month = shown("l3", "Burn against budget: a month at the present rate")
    assert said(tmp_path, "month", series, month, {"{}": 720 * 3.6}, at="24h") == ""
    halfway = {'tidegate:cost_per_hour:sum{region="eu", role="canary", version="7"}': "_x720 1.8x800"}
    for name, engines, share in (("a whole day", {}, 0.8), ("half a day", halfway, 1.0)):
        budget = f"round({shown('l3', 'Share of the budget')}, 0.01)"
        assert said(tmp_path, name, series | engines, budget, {"{}": share}, at="24h") == ""
