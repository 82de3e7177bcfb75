"""Rules on others' metrics: golden files for each preset, and what Prometheus itself says of the recorded signals.

After an intended change: `TIDEGATE_REGENERATE=1 pytest tests/integration/slo/test_preset_rules.py`, then read the diff.
"""

from __future__ import annotations

import json
import os
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.services.prometheus import Series, judged, tells

from slo.export import export_files
from slo.signals import signal_groups
from slo.spec import CountedBy, SloSpec
from tidegate.core.metrics import MetricNames, MetricSource, PresetName, presets
from tidegate.core.spec import parse_spec

GOLDEN = Path(__file__).parents[2] / "golden" / "presets"


class Case(MetricNames):
    """The file `source.yaml` of a golden folder."""

    slos: tuple[SloSpec, ...]


def case(name: str) -> Case:
    path = GOLDEN / name / "source.yaml"
    return parse_spec(path.read_text(), Case, file=str(path))


def exported(name: str) -> dict[str, str]:
    wanted = case(name)
    files = export_files(
        "support-llm",
        wanted.slos,
        counted_by=CountedBy.ENGINE,
        sources=wanted.sources,
        stage=timedelta(minutes=30),
        scrape_interval=timedelta(seconds=15),
    )
    return {file.name: file.text for file in files}


def panels(dashboard: str) -> list[dict[str, Any]]:
    return [panel for panel in json.loads(dashboard)["panels"] if panel["type"] != "row"]


CASES = sorted(path.parent.name for path in GOLDEN.glob("*/source.yaml"))


def test_every_preset_that_counts_requests_has_a_golden_file() -> None:
    counting = {name for name in PresetName if presets()[name].requests}
    assert {source.preset for name in CASES for source in case(name).sources} >= counting
    assert any(source.preset is None for name in CASES for source in case(name).sources)


@pytest.mark.parametrize("name", CASES)
def test_what_is_exported_is_what_people_have_read(name: str) -> None:
    made = exported(name)
    files = {"rules.yaml": made["rules.yaml"]}
    files["panels.txt"] = "".join(
        f"{panel['title']}\n  {target['expr']}\n"
        for file, text in made.items()
        if file.startswith("dashboards/")
        for panel in panels(text)
        for target in panel["targets"]
        if "tidegate:" in target["expr"]
    )
    for file, text in files.items():
        path = GOLDEN / name / file
        if "TIDEGATE_REGENERATE" in os.environ:
            assert "CI" not in os.environ, "what CI compares with is written by people"
            path.write_text(text)
        assert path.read_text() == text


@pytest.mark.parametrize(
    ("name", "canary", "given"),
    [
        ("istio", 'destination_service_name="support-llm-canary"', set()),
        ("vllm", 'cluster="{{args.region}}",revision="{{args.version}}"', {"region", "version"}),
        ("by-hand", 'cluster="{{args.region}}",track="canary"', {"region"}),
    ],
)
def test_an_analysis_looks_at_the_canary_alone(name: str, canary: str, given: set[str]) -> None:
    templates = list(yaml.safe_load_all(exported(name)["analysis-templates.yaml"]))
    (asked,) = (each for each in templates if each["metadata"]["name"] == "support-llm.availability-step")
    assert {each["name"] for each in asked["spec"]["args"] if "value" not in each} == given
    counter = {"istio": "istio_requests_total{", "vllm": "http_requests_total{"}.get(name, "gateway_requests_total{")
    for metric in asked["spec"]["metrics"]:
        query = metric["provider"]["prometheus"]["query"]
        selected = [part.partition("}[")[0] for part in query.split(counter)[1:]]
        assert selected and all(matcher in part for part in selected for matcher in canary.split(","))


def traffic(name: str, arm: str, codes: dict[str, int], *, status: str, edges: tuple[str, str], times: str) -> Series:
    """Of one arm, a minute's requests by status; 60 answers a minute are fast, 30 slow."""
    series = {f'{name}{{{arm},{status}="{code}"}}': f"0+{count}x20" for code, count in codes.items()}
    low, high = edges
    buckets = {low: 60, high: 90, "+Inf": 90}
    of_times = f',{status}="200"' if times != "envoy_cluster_upstream_rq_time" else ""
    return (
        series
        | {f'{times}_bucket{{{arm}{of_times},le="{le}"}}': f"0+{count}x20" for le, count in buckets.items()}
        | {f"{times}_count{{{arm}{of_times}}}": "0+90x20"}
    )


def of_istio(service: str, codes: dict[str, int]) -> Series:
    arm = f'reporter="source",destination_service_name="{service}",destination_service_namespace="serving"'
    flags = {f'istio_requests_total{{{arm},response_code="200",response_flags="UC"}}': "0+6x20"}
    return flags | traffic(
        "istio_requests_total",
        arm,
        codes,
        status="response_code",
        edges=("1000", "10000"),
        times="istio_request_duration_milliseconds",
    )


def of_envoy(cluster: str, codes: dict[str, int]) -> Series:
    arm = f'envoy_cluster_name="{cluster}"'
    apart = {
        f"envoy_cluster_upstream_cx_destroy_remote_with_active_rq{{{arm}}}": "0+6x20",
        f"envoy_cluster_upstream_rq_timeout{{{arm}}}": "0x20",
    }
    return apart | traffic(
        "envoy_cluster_upstream_rq",
        arm,
        codes,
        status="envoy_response_code",
        edges=("1000", "10000"),
        times="envoy_cluster_upstream_rq_time",
    )


def of_nginx(canary: str, codes: dict[str, int]) -> Series:
    arm = f'ingress="support-llm",canary="{canary}"'
    return traffic(
        "nginx_ingress_controller_requests",
        arm,
        codes,
        status="status",
        edges=("1", "10"),
        times="nginx_ingress_controller_request_duration_seconds",
    )


RULE = "httproute/serving/support-llm/rule/0/backend"
GOOD, BAD = {"200": 90}, {"200": 78, "500": 6, "404": 12}
EACH: dict[str, tuple[Series, float]] = {
    "istio": (of_istio("support-llm-stable", GOOD) | of_istio("support-llm-canary", BAD), 6),
    "envoy-gateway": (of_envoy(f"{RULE}/0", GOOD) | of_envoy(f"{RULE}/1", BAD), 6),
    "nginx": (of_nginx("", GOOD) | of_nginx("serving-support-llm-canary-80", BAD), 0),
}
"""Series of both arms, and how many of a minute's streams each preset knows to have been cut."""


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Prometheus")
@pytest.mark.parametrize("name", EACH)
def test_prometheus_says_the_same_of_every_proxy(name: str, tmp_path: Path) -> None:
    series, cut = EACH[name]
    sources = case(name).sources
    stable, canary = (f'{{service="support-llm", role="{role}"}}' for role in ("stable", "canary"))
    more = cut if name == "istio" else 0  # Its cut streams are series of their own here.
    expected: dict[str, dict[str, float]] = {
        "tidegate:requests:rate1m": {stable: (90 + more) / 60, canary: (96 + more) / 60},
        "tidegate:errors:rate1m": {stable: cut / 60, canary: (6 + cut) / 60},
        "tidegate:refusals:rate1m": {stable: 0, canary: 12 / 60},
        "tidegate:e2e_seconds:p50_1m": {stable: 0.75, canary: 0.75},
    }
    rounded = {query: {arm: round(value, 4) for arm, value in found.items()} for query, found in expected.items()}
    groups = signal_groups(service="support-llm", counted_by=CountedBy.ENGINE, cost=None, sources=sources)
    assert judged(tmp_path, groups, [tells(name, series, rounded)]) == ""


def test_a_preset_without_the_signal_is_refused_for_an_slo() -> None:
    (first,) = (slo for slo in case("vllm").slos if slo.name == "first-token")
    source = MetricSource.model_validate({"preset": "nginx", "arms": {"stable": "", "canary": "a"}})
    (odd,) = first.unmeasured((source,))
    assert (odd.where, odd.found) == (
        ("ttft",),
        "ttft, which no source of `metrics.sources` has (nginx: requests, e2e)",
    )


def test_a_threshold_between_the_edges_of_a_proxy_is_refused_in_words_of_time() -> None:
    slo = SloSpec.model_validate({"name": "whole", "objective": 95, "e2e": {"below": "2s"}})
    (odd,) = slo.unmeasured(case("istio").sources)
    assert odd.expected == "an edge of istio_request_duration_milliseconds's buckets; the nearest: 1s and 2.5s"
