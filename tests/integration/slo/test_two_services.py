"""Two deliveries in one Prometheus, with the rules of both: each SLO, alert and signal sees its own series alone."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from fakes.metrics.slos import slo_spec
from fakes.services.prometheus import Series, judged, of_service, tells

from slo.catalogue import group_of
from slo.metrics.vllm import E2E, ITL, QUEUE_TIME, TTFT
from slo.rules import RuleGroup, rules_for
from slo.signals import signal_groups
from slo.spec import KINDS, CostSpec, CountedBy, edge_label
from slo.windows import windows_for

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Prometheus")

CHAT, CODE = "chat", "code"
ARM = 'region="eu-west-1", role="stable", version="6"'
"""The same of both: nothing but the service tells them apart."""

EVENTS = {
    'envoy_cluster_upstream_rq{envoy_response_code="200"}': (54, 30),
    'envoy_cluster_upstream_rq{envoy_response_code="500"}': (6, 30),
    'envoy_cluster_upstream_rq{envoy_response_code="404"}': (60, 0),
    "envoy_cluster_upstream_cx_destroy_remote_with_active_rq{}": (0, 0),
    "envoy_cluster_upstream_rq_per_try_idle_timeout{}": (0, 0),
    'envoy_vhost_vcluster_upstream_rq_total{envoy_virtual_host="users"}': (6, 12),
    'vllm:request_success_total{finished_reason="stop"}': (60, 30),
    **{
        f'{histogram.name}_bucket{{le="{le}"}}': counts
        for histogram in (TTFT, ITL, E2E, QUEUE_TIME)
        for le, counts in {"0.5": (30, 0), "1.0": (60, 60), "+Inf": (60, 60)}.items()
    },
    "vllm:generation_tokens_total{}": (6000, 600),
    "vllm:prompt_tokens_total{}": (60, 120),
    "vllm:num_preemptions_total{}": (6, 0),
    "vllm:prefix_cache_hits_total{}": (30, 60),
    "vllm:prefix_cache_queries_total{}": (60, 60),
    "vllm:spec_decode_num_accepted_tokens_total{}": (30, 15),
    "vllm:spec_decode_num_draft_tokens_total{}": (60, 60),
}
"""A minute, of chat and of code."""

LEVELS = {
    'vllm:num_requests_running{instance="a"}': (2, 5),
    'vllm:num_requests_running{instance="b"}': (None, 3),
    'vllm:num_requests_waiting{instance="a"}': (1, 6),
    "vllm:kv_cache_usage_perc{}": (0.2, 0.9),
    "DCGM_FI_DEV_GPU_UTIL{}": (70, 20),
    'tidegate_engine_start_seconds{compile_cache="found"}': (24, 30),
    'tidegate_engine_load_seconds{compile_cache="found"}': (20, 25),
}
"""Code has one engine more."""

SIGNALS: dict[str, tuple[float, float]] = {
    "requests:rate1m": (2, 1),
    "errors:rate1m": (0.1, 0.5),
    "refusals:rate1m": (1, 0),
    "error_ratio:rate1m": (0.1, 0.5),
    "finish_reasons:rate1m": (1, 0.5),
    "regenerations:rate5m": (0.1, 0.2),
    **{
        f"{time}_seconds{part}": values
        for time in ("ttft", "itl", "e2e", "queue")
        for part, values in {
            "_bucket:rate1m": (2.5, 2),
            ":p50_1m": (0.5, 0.75),
            ":p95_1m": (0.95, 0.975),
            ":p99_1m": (0.99, 0.995),
        }.items()
    },
    "generation_tokens:rate1m": (100, 10),
    "prompt_tokens:rate1m": (1, 2),
    "preemptions:rate1m": (0.1, 0),
    "queue_depth:sum": (1, 6),
    "running:sum": (2, 8),
    "kv_cache_usage:max": (0.2, 0.9),
    "prefix_cache_hit_ratio:rate5m": (0.5, 1),
    "spec_decode_acceptance:rate5m": (0.5, 0.25),
    "gpu_utilisation:avg": (70, 20),
    "engines:count": (1, 2),
    "engine_start_seconds:max": (24, 30),
    "engine_load_seconds:max": (20, 25),
    "cost_per_hour:sum": (3.6, 7.2),
    "cost_per_1k_tokens:rate1m": (0.01, 0.2),
    "cost_budget_per_hour:sum": (10, 20),
}
"""What is recorded of them."""


def of_arm(series: Series) -> Series:
    """The same, each with the labels of one arm added."""
    return {f"{name[:-1]}{'' if name.endswith('{}') else ', '}{ARM}}}": values for name, values in series.items()}


def rising(a_minute: int) -> str:
    return f"0+{a_minute}x20"


def level(value: float) -> str:
    return f"{value}x20"


def promised(service: str) -> tuple[RuleGroup, ...]:
    """An SLO of each kind; errors are counted by the one who counts here."""
    slos = [slo_spec(kind) for kind in KINDS]
    return rules_for(group_of(slos, service=service, counted_by=CountedBy.PROXY), windows_for(timedelta(days=30)))


def served(*, well: bool) -> Series:
    """Sixty requests a minute: all of them as promised, or none."""
    code = "200" if well else "500"
    series = {
        f'envoy_cluster_upstream_rq{{envoy_response_code="{code}"}}': rising(60),
        "envoy_cluster_upstream_cx_destroy_remote_with_active_rq{}": rising(0),
        "envoy_cluster_upstream_rq_per_try_idle_timeout{}": rising(0),
    }
    for threshold in filter(None, (slo_spec(kind).threshold for kind in KINDS)):
        assert threshold.edge is not None
        name = threshold.histogram.name
        series[f"{name}_count{{}}"] = rising(60)
        series[f'{name}_bucket{{le="{edge_label(threshold.edge)}"}}'] = rising(60 if well else 0)
    series['tidegate_quality_score{dimension="overall"}'] = level(0.9 if well else 0.1)
    series["vllm:kv_cache_usage_perc{}"] = level(0.1 if well else 1)
    series['tidegate_engine_start_seconds{compile_cache="found"}'] = level(30 if well else 600)
    # The first sample is of 1970.
    series["tidegate_engine_ready_timestamp_seconds{}"] = "180x20"
    return of_arm(series)


def test_a_service_is_bad_for_itself_only(tmp_path: Path) -> None:
    series = {**of_service(served(well=True), CHAT), **of_service(served(well=False), CODE)}
    bad = {
        f'{{sloth_service="{service}", sloth_slo="{kind.replace("_", "-")}", region="eu-west-1"}}': share
        for service, share in ((CHAT, 0), (CODE, 1))
        for kind in KINDS
    }
    asked = {
        "sum by (sloth_service, sloth_slo, region) (slo:sli_error:ratio_rate5m)": bad,
        # A page and a ticket each; nobody is woken for a slow start.
        'count by (sloth_service) (ALERTS{alertstate="firing"})': {f'{{sloth_service="{CODE}"}}': 2 * len(KINDS) - 1},
    }
    groups = (*promised(CHAT), *promised(CODE))
    assert judged(tmp_path, groups, [tells("one healthy, one failing", series, asked)]) == ""


def counted(place: int) -> Series:
    """Of the service at that place of each pair."""
    events = {name: rising(counts[place]) for name, counts in EVENTS.items()}
    levels = {name: level(value) for name, values in LEVELS.items() if (value := values[place]) is not None}
    return of_arm(events | levels)


def test_each_signal_is_recorded_once_of_each_service(tmp_path: Path) -> None:
    costs = {CHAT: CostSpec(per_engine_hour=3.6, budget_per_month=7200)}
    costs[CODE] = costs[CHAT].model_copy(update={"budget_per_month": 14400})
    groups = [
        group
        for service, cost in costs.items()
        for group in signal_groups(service=service, counted_by=CountedBy.PROXY, cost=cost)
    ]
    assert {rule.record for group in groups for rule in group.rules} == {f"tidegate:{name}" for name in SIGNALS}
    series = {**of_service(counted(0), CHAT), **of_service(counted(1), CODE)}
    asked = {
        f"sum by (service) (tidegate:{name})": {
            f'{{service="{service}"}}': value for service, value in zip((CHAT, CODE), values, strict=True)
        }
        for name, values in SIGNALS.items()
    }
    assert judged(tmp_path, groups, [tells("both at work", series, asked)]) == ""
