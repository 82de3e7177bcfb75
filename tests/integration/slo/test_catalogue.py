"""What each SLO of the catalogue counts, judged by Prometheus itself."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from fakes.metrics.slos import slo_spec
from fakes.services.prometheus import Series, Test, alerts, judged, tells

from slo.catalogue import group_of
from slo.rules import RuleGroup, rules_for
from slo.spec import CountedBy, SloSpec
from slo.windows import windows_for

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Prometheus")

BAD = "sum by (region) (slo:sli_error:ratio_rate5m)"
EU, US = '{region="eu-west-1"}', '{region="us-east-1"}'
TORN = "envoy_cluster_upstream_cx_destroy_remote_with_active_rq"
TIMEOUT = "envoy_cluster_upstream_rq_per_try_idle_timeout"


def rules(*items: SloSpec, counted_by: CountedBy = CountedBy.PROXY) -> tuple[RuleGroup, ...]:
    return rules_for(group_of(items, service="chat", counted_by=counted_by), windows_for(timedelta(days=30)))


def proxy(
    codes: dict[str, str], *, torn: str = "0x20", late: str = "0x20", role: str = "stable", region: str = "eu-west-1"
) -> Series:
    """One cluster of one proxy; both counters of what broke are there from the start, those of codes are not."""
    labels = f'service="chat",region="{region}",role="{role}",version="6"'
    responses = {f'envoy_cluster_upstream_rq{{{labels},envoy_response_code="{c}"}}': v for c, v in codes.items()}
    return {f"{TORN}{{{labels}}}": torn, f"{TIMEOUT}{{{labels}}}": late, **responses}


def engine(answers: dict[str, str], *, errors: str = "0x20", handler: str = "/v1/chat/completions") -> Series:
    """The API server of one engine, by class of status, and the errors that the engine knows of."""
    labels = 'service="chat",region="eu-west-1",role="stable",version="6"'
    counted = {
        f'http_requests_total{{{labels},handler="{handler}",method="POST",status="{s}"}}': v for s, v in answers.items()
    }
    ends = {"error": errors, "abort": "0+30x20", "stop": "0+30x20"}
    return {f'vllm:request_success_total{{{labels},finished_reason="{r}"}}': v for r, v in ends.items()} | counted


def histogram(name: str, *, within: int, of: int, edge: str, region: str = "eu-west-1", minutes: int = 20) -> Series:
    labels = f'service="chat",region="{region}",role="stable",version="6"'
    return {
        f'{name}_bucket{{{labels},le="{edge}"}}': f"0+{within}x{minutes}",
        f"{name}_count{{{labels}}}": f"0+{of}x{minutes}",
    }


def by_proxy() -> list[Test]:
    shadow = proxy({"500": "0+60x20"}, role="shadow")
    return [
        tells("a healthy region has no error, and not no number", proxy({"200": "0+60x20"}), {BAD: {EU: 0}}),
        tells("5xx", proxy({"200": "0+54x20", "500": "0+6x20"}), {BAD: {EU: 0.1}}),
        tells("a stream cut after its headers", proxy({"200": "0+60x20"}, torn="0+6x20"), {BAD: {EU: 0.1}}),
        tells("cut before its headers", proxy({"200": "0+54x20", "503": "0+6x20"}, torn="0+6x20"), {BAD: {EU: 0.1}}),
        tells("some before, more after", proxy({"200": "0+57x20", "503": "0+3x20"}, torn="0+6x20"), {BAD: {EU: 0.1}}),
        tells("an engine never reached", proxy({"200": "0+54x20", "503": "0+6x20"}), {BAD: {EU: 0.1}}),
        tells("a timeout after the headers", proxy({"200": "0+60x20"}, late="0+6x20"), {BAD: {EU: 0.1}}),
        tells("a timeout before", proxy({"200": "0+54x20", "504": "0+6x20"}, late="0+6x20"), {BAD: {EU: 0.1}}),
        tells("refusals hide nothing", proxy({"200": "0+54x20", "500": "0+6x20", "404": "0+999x20"}), {BAD: {EU: 0.1}}),
        tells("refusals alone are no events", proxy({"404": "0+60x20"}), {BAD: {}}),
        tells("nobody asks", proxy({"200": "60x20"}), {BAD: {}}),
        tells("a stream cut in a quiet hour", proxy({"200": "60x20"}, torn="0+1x20"), {BAD: {EU: 1}}),
        tells("copies reach no user", {**proxy({"200": "0+60x20"}), **shadow}, {BAD: {EU: 0}}),
        tells("the last engine of a region", proxy({"503": "0+60x20"}, role="previous"), {BAD: {EU: 1}}),
        tells(
            "each region for itself",
            {**proxy({"200": "0+60x20"}), **proxy({"500": "0+60x20"}, region="us-east-1")},
            {BAD: {EU: 0, US: 1}},
        ),
    ]  # fmt: skip


def by_engine() -> list[Test]:
    return [
        tells("a healthy engine; who hangs up is no error", engine({"2xx": "0+60x20"}), {BAD: {EU: 0}}),
        tells("5xx", engine({"2xx": "0+54x20", "5xx": "0+6x20"}), {BAD: {EU: 0.1}}),
        tells("an error behind a 200", engine({"2xx": "0+60x20"}, errors="0+6x20"), {BAD: {EU: 0.1}}),
        tells("one error told twice", engine({"2xx": "0+54x20", "5xx": "0+6x20"}, errors="0+6x20"), {BAD: {EU: 0.1}}),
        tells("refusals are apart", engine({"2xx": "0+54x20", "5xx": "0+6x20", "4xx": "0+60x20"}), {BAD: {EU: 0.1}}),
        tells("probes are nobody's requests", engine({"2xx": "0+60x20"}, handler="/health"), {BAD: {}}),
    ]


def gauge(series: str, values: str, seconds: str) -> tuple[str, str]:
    return f'{series}{{service="chat",region="eu-west-1",role="stable",instance="{seconds}"}}', values


def test_errors_as_the_proxy_counts_them(tmp_path: Path) -> None:
    assert judged(tmp_path, rules(slo_spec("errors")), by_proxy()) == ""


def test_errors_as_the_engine_counts_them(tmp_path: Path) -> None:
    assert judged(tmp_path, rules(slo_spec("errors"), counted_by=CountedBy.ENGINE), by_engine()) == ""


@pytest.mark.parametrize(
    ("kind", "name", "edge"),
    [
        ("ttft", "vllm:time_to_first_token_seconds", "0.25"),
        ("itl", "vllm:inter_token_latency_seconds", "0.05"),
        ("e2e", "vllm:e2e_request_latency_seconds", "10.0"),
        ("queue_time", "vllm:request_queue_time_seconds", "1.0"),
        ("tokens_per_second", "vllm:request_time_per_output_token_seconds", "0.05"),
    ],
)
def test_times_are_bad_beyond_their_edge(tmp_path: Path, kind: str, name: str, edge: str) -> None:
    nobody = {
        series: values.split("+")[0] + "x20" for series, values in histogram(name, within=0, of=0, edge=edge).items()
    }
    tests = [
        tells("one in ten", histogram(name, within=54, of=60, edge=edge), {BAD: {EU: 0.1}}),
        tells("none", histogram(name, within=60, of=60, edge=edge), {BAD: {EU: 0}}),
        tells("nobody asked", nobody, {BAD: {}}),
        tells("an engine with other buckets", histogram(name, within=54, of=60, edge="0.123"), {BAD: {}}),
    ]
    assert judged(tmp_path, rules(slo_spec(kind)), tests) == ""


def test_engines_from_before_a_threshold_of_the_spec_s_own_are_not_counted(tmp_path: Path) -> None:
    name = "vllm:time_to_first_token_seconds"
    stable = histogram(name, within=60, of=60, edge="0.25")
    told = histogram(name, within=54, of=60, edge="0.2")
    canary = {series.replace('"stable",version="6"', '"canary",version="7"'): seen for series, seen in told.items()}
    tests = [tells("none has it", stable, {BAD: {}}), tells("the canary has", {**stable, **canary}, {BAD: {EU: 0.1}})]
    assert judged(tmp_path, rules(slo_spec("ttft", below="200ms")), tests) == ""


@pytest.mark.long
def test_levels_are_bad_for_a_share_of_the_time_of_all_engines(tmp_path: Path) -> None:
    kv = [
        tells("below", dict([gauge("vllm:kv_cache_usage_perc", "0.9x20", "a")]), {BAD: {EU: 0}}),
        tells("above", dict([gauge("vllm:kv_cache_usage_perc", "0.91x20", "a")]), {BAD: {EU: 1}}),
        tells(
            "one of two engines",
            dict([gauge("vllm:kv_cache_usage_perc", "1x20", "a"), gauge("vllm:kv_cache_usage_perc", "0.1x20", "b")]),
            {BAD: {EU: 0.5}},
        ),
        tells("no engine", {}, {BAD: {}}),
    ]
    assert judged(tmp_path, rules(slo_spec("kv_cache")), kv) == ""
    score = 'tidegate_quality_score{service="chat",region="eu-west-1",role="canary",version="7",dimension="overall"}'
    quality = [
        tells("good enough", {score: "0.8x20"}, {BAD: {EU: 0}}),
        tells("too low", {score: "0.79x20"}, {BAD: {EU: 1}}),
        tells("no score yet", {score: "NaN " * 20}, {BAD: {}}),
        tells("another dimension", {score.replace("overall", "safety"): "0.1x20"}, {BAD: {}}),
        tells("judged in one minute of two", {score: "0.9 0.7 0.9 0.7 0.9 0.7 0.9 0.7 0.9 0.7 0.9"}, {BAD: {EU: 0.5}}),
    ]
    assert judged(tmp_path, rules(slo_spec("quality")), quality) == ""


def started(seconds: float, *, at: int, pod: str, until: int = 40, cache: str = "found") -> Series:
    """An engine that took requests from minute `at` on, scraped every minute until it is gone."""
    labels = f'service="chat",region="eu-west-1",role="canary",version="7",instance="{pod}"'
    nothing, there = "_ " * at, f"x{until - at}"
    return {
        f'tidegate_engine_start_seconds{{{labels},compile_cache="{cache}"}}': f"{nothing}{seconds}{there}",
        f"tidegate_engine_ready_timestamp_seconds{{{labels}}}": f"{nothing}{at * 60}{there}",
    }


@pytest.mark.long
def test_starts_are_slow_for_their_share_of_all_starts(tmp_path: Path) -> None:
    """Whether an engine then serves for a day or is gone in a quarter of an hour."""
    month = "sum by (region) (slo:sli_error:ratio_rate1h)"
    quick, late = started(20, at=2, pod="a"), started(301, at=2, pod="b", cache="missed")
    tests = [
        tells("in time", started(300, at=2, pod="a"), {BAD: {EU: 0}}, at="10m"),
        tells("too late", late, {BAD: {EU: 1}}, at="10m"),
        tells("one of two", {**quick, **late}, {BAD: {EU: 0.5}}, at="10m"),
        tells("nobody started lately", {**quick, **late}, {BAD: {}, month: {EU: 0.5}}, at="30m"),
        tells(
            "one serves on, three others are gone",
            {
                **late,
                **started(20, at=2, pod="c", until=14),
                **started(20, at=5, pod="d", until=17),
                **started(20, at=9, pod="e", until=21),
            },
            {month: {EU: 0.25}},
            at="40m",
        ),
        tells("no engine of ours", {}, {BAD: {}}, at="10m"),
    ]
    assert judged(tmp_path, rules(slo_spec("start")), tests) == ""


def test_a_pod_whose_container_starts_again_is_a_start_more(tmp_path: Path) -> None:
    labels = 'service="chat",region="eu-west-1",role="stable",version="6",instance="a"'
    series = {
        f'tidegate_engine_start_seconds{{{labels},compile_cache="found"}}': "20x15 _x4 400x20",
        f"tidegate_engine_ready_timestamp_seconds{{{labels}}}": "0x15 _x4 1200x20",
    }
    hour = "sum by (region) (slo:sli_error:ratio_rate1h)"
    asked = [tells("the second one is slow", series, {BAD: {EU: 1}, hour: {EU: 0.5}}, at="31m")]
    assert judged(tmp_path, rules(slo_spec("start")), asked) == ""


def test_slow_first_tokens_page_for_their_region_in_words(tmp_path: Path) -> None:
    """Six hours of one in five too late in us-east-1, and all in time in eu-west-1; an objective of 99 %."""
    name = "vllm:time_to_first_token_seconds"
    series = {
        **histogram(name, within=60, of=60, edge="0.25", minutes=400),
        **histogram(name, within=48, of=60, edge="0.25", region="us-east-1", minutes=400),
    }
    page, ticket = (
        {
            "exp_labels": {
                "region": "us-east-1",
                "sloth_id": "chat-ttft",
                "sloth_service": "chat",
                "sloth_slo": "ttft",
                "sloth_severity": severity,
            },
            "exp_annotations": {
                "title": f"({severity}) chat ttft SLO error budget burn rate is too fast.",
                "summary": "chat in us-east-1: first tokens come late",
                "description": (
                    "99% of requests get their first token within 250ms, over 30d. In us-east-1, 20% of events were "
                    f"bad lately; the error budget is spent {speed}."
                ),
                "runbook": "docs/reference/slo-catalogue.md#ttft",
            },
        }
        for severity, speed in (("page", "so fast that it will not last"), ("ticket", "faster than it may be"))
    )
    tests = [alerts("slow in one region", series, "ChatTtft", [page, ticket], at="390m")]
    assert judged(tmp_path, rules(slo_spec("ttft")), tests, every="5m") == ""
