"""What Prometheus is told to scrape."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rollouts.local import scrape_config

CONFIG = scrape_config.config(Path("/state/targets.json"), Path("/state/rules.yml"))


@pytest.mark.parametrize(
    ("name", "role", "version"), [("shadow_7", "shadow", "7"), ("stable_6_rc1", "stable", "6_rc1")]
)
def test_a_cluster_name_becomes_role_and_version(name: str, role: str, version: str) -> None:
    proxy = CONFIG["scrape_configs"][1]
    rules = [rule for rule in proxy["metric_relabel_configs"] if rule["source_labels"] == ["envoy_cluster_name"]]
    match = re.fullmatch(rules[0]["regex"], name)
    assert match is not None
    labels = {rule["target_label"]: match[int(rule["replacement"][1:])] for rule in rules}
    assert labels == {"role": role, "version": version}


def test_only_metrics_that_gates_or_people_read_are_kept() -> None:
    engine, proxy, delivery = (job["metric_relabel_configs"][0]["regex"] for job in CONFIG["scrape_configs"])
    assert re.fullmatch(engine, "vllm:time_to_first_token_seconds_bucket")
    assert re.fullmatch(engine, "http_requests_total")
    assert not re.fullmatch(engine, "python_gc_objects_collected_total")
    assert re.fullmatch(proxy, "envoy_cluster_upstream_rq_xx")
    assert not re.fullmatch(proxy, "envoy_server_uptime")
    assert re.fullmatch(delivery, "tidegate_gate_number")
    assert not re.fullmatch(delivery, "python_info")


def test_rules_are_evaluated_every_ten_seconds_from_a_file_of_their_own() -> None:
    assert CONFIG["rule_files"] == ["/state/rules.yml"]
    assert CONFIG["global"]["evaluation_interval"] == "10s"
