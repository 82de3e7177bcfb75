"""What Prometheus is told to scrape."""

from __future__ import annotations

import re
from pathlib import Path

from rollouts import scrape
from rollouts.model import Arm, Role

CANARY = Arm(role=Role.CANARY, version="7", digest="d", url="http://127.0.0.1:8007", ready=True)


def test_an_engine_is_labelled_with_region_role_and_version() -> None:
    (target,) = scrape.engine_targets("eu-west-1", [CANARY])
    assert target["targets"] == ["127.0.0.1:8007"]
    assert target["labels"] == {"part": "engine", "region": "eu-west-1", "role": "canary", "version": "7"}


def test_a_proxy_knows_its_region_and_leaves_roles_to_its_clusters() -> None:
    target = scrape.proxy_target("eu-west-1", "http://127.0.0.1:9000")
    assert target == {"targets": ["127.0.0.1:9000"], "labels": {"part": "proxy", "region": "eu-west-1"}}


def test_a_cluster_name_becomes_role_and_version() -> None:
    proxy = scrape.config(Path("targets.json"))["scrape_configs"][1]
    rules = [rule for rule in proxy["metric_relabel_configs"] if "target_label" in rule]
    match = re.fullmatch(rules[0]["regex"], "shadow_7")
    assert match is not None
    labels = {rule["target_label"]: match[int(rule["replacement"][1:])] for rule in rules}
    assert labels == {"role": "shadow", "version": "7"}


def test_each_job_takes_its_own_part_of_the_targets() -> None:
    jobs = scrape.config(Path("/state/targets.json"))["scrape_configs"]
    assert [job["relabel_configs"][0]["regex"] for job in jobs] == ["engine", "proxy"]
    assert {job["file_sd_configs"][0]["files"][0] for job in jobs} == {"/state/targets.json"}


def test_only_metrics_that_gates_or_people_read_are_kept() -> None:
    engine, proxy = (job["metric_relabel_configs"][0]["regex"] for job in scrape.config(Path("t"))["scrape_configs"])
    assert re.fullmatch(engine, "vllm:time_to_first_token_seconds_bucket")
    assert re.fullmatch(engine, "http_requests_total")
    assert not re.fullmatch(engine, "python_gc_objects_collected_total")
    assert re.fullmatch(proxy, "envoy_cluster_upstream_rq_xx")
    assert not re.fullmatch(proxy, "envoy_server_uptime")
