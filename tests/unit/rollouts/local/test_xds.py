"""What Envoy is told for the arms of a region."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rollouts.base import RegionSplit
from rollouts.local import xds

STABLE, CANARY, PREVIOUS = "6", "7", "5"
ENGINE = {f"canary_{CANARY}": 8007}


def route(target: RegionSplit) -> dict[str, Any]:
    (resource,) = xds.routes(target, generation="3")["resources"]
    (host,) = resource["virtual_hosts"]
    (only,) = host["routes"]
    return dict(only)


def attempts(target: RegionSplit) -> list[dict[str, int]]:
    """The clusters of the first, second and third attempt, with their weights."""
    plugin = route(target)["route"]["inline_cluster_specifier_plugin"]["extension"]["typed_config"]
    return [
        {cluster["cluster_name"]: cluster["weight"] for cluster in group["clusters"]}
        for group in plugin["priority_groups"]
    ]


@pytest.mark.parametrize(
    ("target", "tried"),
    [
        (RegionSplit(stable=STABLE, canary=CANARY), [{"stable_6": 100}] * 3),
        (
            RegionSplit(stable=STABLE, canary=CANARY, weight=25),
            [{"stable_6": 75, "canary_7": 25}, {"stable_6": 100}, {"stable_6": 100}],
        ),
        (
            RegionSplit(stable=STABLE, previous=PREVIOUS, canary=CANARY, weight=100),
            [{"canary_7": 100}, {"stable_6": 100}, {"previous_5": 100}],
        ),
    ],
)
def test_users_are_split_by_weight_and_tried_again_on_the_stable_then_on_what_is_warm(
    target: RegionSplit, tried: list[dict[str, int]]
) -> None:
    assert attempts(target) == tried


def test_a_prompt_that_reached_an_engine_never_meets_another() -> None:
    policy = route(RegionSplit(stable=STABLE))["route"]["retry_policy"]
    assert set(policy["retry_on"].split(",")) == {"connect-failure", "refused-stream", "reset-before-request"}
    assert policy["refresh_cluster_on_retry"]


def test_copies_go_to_a_cluster_of_their_own() -> None:
    mirrored = RegionSplit(stable=STABLE, canary=CANARY, mirror=30)
    (policy,) = route(mirrored)["route"]["request_mirror_policies"]
    assert policy["cluster"] == "shadow_7"
    assert policy["runtime_fraction"]["default_value"] == {"numerator": 30, "denominator": "HUNDRED"}
    assert "request_mirror_policies" not in route(RegionSplit(stable=STABLE, canary=CANARY))["route"]


def test_streams_have_no_deadline_but_silence_has() -> None:
    action = route(RegionSplit(stable=STABLE))["route"]
    assert (action["timeout"], action["retry_policy"]["per_try_idle_timeout"]) == ("0s", "300s")


def test_every_request_has_a_connection_of_its_own() -> None:
    (resource,) = xds.clusters(ENGINE, generation="1")["resources"]
    (options,) = resource["typed_extension_protocol_options"].values()
    assert options["common_http_protocol_options"]["max_requests_per_connection"] == 1


def test_wrong_answers_never_eject_a_canary() -> None:
    (resource,) = xds.clusters(ENGINE, generation="1")["resources"]
    detection = resource["outlier_detection"]
    assert detection["enforcing_consecutive_5xx"] == detection["enforcing_consecutive_gateway_failure"] == 0
    assert detection["consecutive_local_origin_failure"] > 0


def test_every_generation_differs_even_when_the_operation_does_not() -> None:
    one, other = (xds.routes(RegionSplit(stable=STABLE), generation=generation)["resources"] for generation in "12")
    assert one != other


def test_the_start_file_keeps_to_the_loopback_and_logs_no_prompt() -> None:
    text = json.dumps(
        xds.bootstrap(entry_port=8000, stats_port=9000, admin=Path("/state/admin.sock"), folder=Path("/state/fleet"))
    )
    assert set(re.findall(r'"address": "([^"]+)"', text)) == {"127.0.0.1"}
    assert "access_log" not in text
    assert '"enable_reuse_port": false' in text


def test_only_the_statistics_that_somebody_reads_are_kept() -> None:
    kept = [re.compile(pattern) for pattern in xds.STATS]

    def is_kept(name: str) -> bool:
        return any(pattern.fullmatch(name) for pattern in kept)

    assert is_kept("cluster.canary_7.upstream_rq_active")
    assert is_kept("cluster.shadow_7.upstream_rq_5xx")
    assert is_kept("cluster.canary_7.upstream_cx_destroy_remote_with_active_rq")
    assert not is_kept("cluster.canary_7.upstream_cx_total")
    assert not is_kept("server.uptime")
