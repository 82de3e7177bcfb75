"""What an autoscaler is told, evaluated by Prometheus itself: engines wanted, in every stage of a delivery."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fakes.fleet import fleet_spec, release
from fakes.services.prometheus import Series, Test, judged, of_service, tells

from rollouts.manifests.manifest import Site
from rollouts.manifests.objects.capacity import KV_CACHE, WAITING, signals
from rollouts.manifests.pod_spec import AutoscaleSpec

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Prometheus")

WANTED = AutoscaleSpec(min_replicas=1, max_replicas=8)
QUERY = {signal.name: signal.query for signal in signals(Site(fleet=fleet_spec(), release=release()), WANTED)}


def arm(role: str, *, waiting: int, usage: float, engines: int = 2, region: str = "eu-west-1") -> Series:
    """Engines of one role."""
    series = {}
    for engine in range(engines):
        labels = f'region="{region}", role="{role}", instance="{engine}"'
        series[f"vllm:num_requests_waiting{{{labels}}}"] = f"{waiting}x20"
        series[f"vllm:kv_cache_usage_perc{{{labels}}}"] = f"{usage}x20"
    return of_service(series, "support-llm")


def copied(percent: int) -> Series:
    return of_service(
        {'tidegate_delivery_mirror_percent{region="eu-west-1", version="7"}': f"{percent}x20"}, "support-llm"
    )


STABLE = arm("stable", waiting=3, usage=0.4)
CANARY = arm("canary", waiting=1, usage=0.2)
ALL: list[Test] = [
    tells("users on the stable alone", STABLE, {QUERY[WAITING]: 6, QUERY[KV_CACHE]: 0.8}),
    tells("users on both arms count once", {**STABLE, **CANARY}, {QUERY[WAITING]: 8, QUERY[KV_CACHE]: 1.2}),
    tells("a mirror of 0 is none", {**STABLE, **CANARY, **copied(0)}, {QUERY[WAITING]: 8, QUERY[KV_CACHE]: 1.2}),
    tells("copies ask for nothing", {**STABLE, **CANARY, **copied(100)}, {QUERY[WAITING]: 6, QUERY[KV_CACHE]: 0.8}),
    tells(
        "warm versions and other regions do not count",
        {
            **STABLE,
            **arm("previous", waiting=9, usage=0.9),
            **arm("stable", waiting=9, usage=0.9, region="us-east-1"),
        },
        {QUERY[WAITING]: 6, QUERY[KV_CACHE]: 0.8},
    ),
    tells("no engine in sight is no answer", copied(100), {query: {} for query in QUERY.values()}),
]


def test_an_autoscaler_is_told_what_users_need(tmp_path: Path) -> None:
    assert judged(tmp_path, (), ALL) == ""


def test_the_expectations_can_fail(tmp_path: Path) -> None:
    wrong = tells("copies count", {**STABLE, **CANARY, **copied(100)}, {QUERY[WAITING]: 8})
    assert "got: {} 6E+00" in judged(tmp_path, (), [wrong])
