"""What the recorded signals say, judged by Prometheus itself."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fakes.services.prometheus import Series, judged, tells

from slo.signals import signal_groups
from slo.spec import CostSpec, CountedBy

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Prometheus")

ARM = 'service="chat", region="eu-west-1", role="canary", version="7"'
ONE = f"{{{ARM}}}"
PROXY = signal_groups(
    service="chat", counted_by=CountedBy.PROXY, cost=CostSpec(per_engine_hour=3.6, budget_per_month=7200)
)
TTFT = "vllm:time_to_first_token_seconds_bucket"


def of_arm(series: Series) -> Series:
    """The same, each with the labels of one arm added."""
    return {f"{name[:-1]}{'' if name.endswith('{}') else ','}{ARM}}}": values for name, values in series.items()}


def cluster(codes: dict[str, str], *, torn: str = "0x20") -> Series:
    broken = {
        "envoy_cluster_upstream_cx_destroy_remote_with_active_rq{}": torn,
        "envoy_cluster_upstream_rq_per_try_idle_timeout{}": "0x20",
    }
    counted = {f'envoy_cluster_upstream_rq{{envoy_response_code="{code}"}}': values for code, values in codes.items()}
    return of_arm(broken | counted)


def test_requests_and_what_became_of_them(tmp_path: Path) -> None:
    some = cluster({"200": "0+48x20", "500": "0+6x20", "404": "0+60x20"}, torn="0+6x20")
    tests = [
        tells(
            "refusals are told apart, and are no part of the share of errors",
            some,
            {
                "tidegate:requests:rate1m": {ONE: 1.9},
                "tidegate:errors:rate1m": {ONE: 0.2},
                "tidegate:refusals:rate1m": {ONE: 1},
                "tidegate:error_ratio:rate1m": {ONE: 0.2222},
            },
        ),
        tells(
            "an arm without requests has zeros, and no share",
            cluster({}),
            {
                "tidegate:requests:rate1m": {ONE: 0},
                "tidegate:errors:rate1m": {ONE: 0},
                "tidegate:refusals:rate1m": {ONE: 0},
                "tidegate:error_ratio:rate1m": {},
            },
        ),
    ]
    assert judged(tmp_path, PROXY, tests) == ""


def test_requests_as_engines_count_them(tmp_path: Path) -> None:
    groups = signal_groups(service="chat", counted_by=CountedBy.ENGINE, cost=None)
    handler = 'handler="/v1/completions",method="POST"'
    series = of_arm(
        {
            f'http_requests_total{{{handler},status="2xx"}}': "0+54x20",
            f'http_requests_total{{{handler},status="4xx"}}': "0+6x20",
            'vllm:request_success_total{finished_reason="error"}': "0+6x20",
        }
    )
    asked = {
        "tidegate:requests:rate1m": {ONE: 1},
        "tidegate:errors:rate1m": {ONE: 0.1},
        "tidegate:refusals:rate1m": {ONE: 0.1},
        "tidegate:error_ratio:rate1m": {ONE: 0.1111},
        "tidegate:finish_reasons:rate1m": {f'{{finished_reason="error", {ARM}}}': 0.1},
        "tidegate:cost_per_hour:sum": {},
    }
    assert judged(tmp_path, groups, [tells("engines", series, asked)]) == ""


def test_times_without_requests_have_no_quantile(tmp_path: Path) -> None:
    busy = of_arm(
        {f'{TTFT}{{le="{le}"}}': v for le, v in {"0.1": "0+30x20", "0.25": "0+60x20", "+Inf": "0+60x20"}.items()}
    )
    quiet = dict.fromkeys(busy, "60x20")
    tests = [
        tells("busy", busy, {"tidegate:ttft_seconds:p50_1m": {ONE: 0.1}, "tidegate:ttft_seconds:p95_1m": {ONE: 0.235}}),
        tells("quiet", quiet, {"tidegate:ttft_seconds:p50_1m": {}, "sum(tidegate:ttft_seconds_bucket:rate1m)": 0}),
    ]
    assert judged(tmp_path, PROXY, tests) == ""


def test_engines_are_counted_once_and_paid_for(tmp_path: Path) -> None:
    """Two processes, one of them with two data-parallel ranks."""
    ranks = (("a", 0), ("a", 1), ("b", 0))
    series = of_arm(
        {f'vllm:num_requests_running{{instance="{i}",engine="{rank}"}}': "2x20" for i, rank in ranks}
        | {f'vllm:num_requests_waiting{{instance="{i}",engine="{rank}"}}': "1x20" for i, rank in ranks}
        | {f'vllm:kv_cache_usage_perc{{instance="{i}",engine="{rank}"}}': f"0.{rank + 1}x20" for i, rank in ranks}
        | {
            'vllm:generation_tokens_total{instance="a"}': "0+6000x20",
            'vllm:prefix_cache_hits_total{instance="a"}': "0+30x20",
            'vllm:prefix_cache_queries_total{instance="a"}': "0+60x20",
            'vllm:spec_decode_num_accepted_tokens_total{instance="a"}': "0x20",
            'vllm:spec_decode_num_draft_tokens_total{instance="a"}': "0x20",
        }
    )
    asked = {
        "tidegate:engines:count": {ONE: 2},
        "tidegate:running:sum": {ONE: 6},
        "tidegate:queue_depth:sum": {ONE: 3},
        "tidegate:kv_cache_usage:max": {ONE: 0.2},
        "tidegate:generation_tokens:rate1m": {ONE: 100},
        "tidegate:prefix_cache_hit_ratio:rate5m": {ONE: 0.5},
        "tidegate:spec_decode_acceptance:rate5m": {},
        "tidegate:gpu_utilisation:avg": {},
        "tidegate:cost_per_hour:sum": {ONE: 7.2},
        "tidegate:cost_per_1k_tokens:rate1m": {ONE: 0.02},
        "tidegate:cost_budget_per_hour:sum": {'{service="chat"}': 10},
    }
    assert judged(tmp_path, PROXY, [tells("engines", series, asked)]) == ""
