"""Promises of a delivery: their rules, what a spec may not promise, the alert when registry and regions disagree."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.clusters.region import a_fleet
from fakes.delivery.world import SPEC, a_spec
from fakes.metrics.queries import metric_of

from pipelines.plan.gates import rules_of
from pipelines.plan.slo_export import SLACK, agreement_of, promotion_window
from pipelines.spec.delivery import Delivery
from pipelines.spec.slos import untold_by_engine
from rollouts.local import scrape_config
from slo.metrics import BUCKETS, TTFT
from slo.promql import series_of
from slo.spec import SloSpec
from tidegate.core.spec import parse_spec

SLOS = """
slos:
  - {name: availability, objective: 99.9, errors: {}}
  - {name: served, objective: 99, errors: {counted_by: engine}, window: 28d}
  - {name: ttft, objective: 99, ttft: {below: 250ms}}
  - {name: itl, objective: 99, itl: {below: 50ms}}
  - {name: e2e, objective: 99, e2e: {below: 2.5s}}
  - {name: queue, objective: 99, queue_time: {below: 1s}}
  - {name: speed, objective: 95, tokens_per_second: {at_least: 20}}
  - {name: cache, objective: 99, kv_cache: {below: 90%}}
  - {name: answers, objective: 95, quality: {at_least: 0.8}}
  - {name: start, objective: 95, start: {below: 5m}}
"""


def groups(slos: str = SLOS) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(rules_of(parse_spec(SPEC + slos, Delivery, file="d.yaml")))["groups"]
    return found


def rules(slos: str = SLOS) -> Iterator[dict[str, Any]]:
    for group in groups(slos):
        yield from group["rules"]


def test_a_delivery_without_slos_has_signals_all_the_same() -> None:
    names = [group["name"] for group in groups("")]
    assert names and all(name.startswith("tidegate-") for name in names)
    assert not [rule for rule in rules("") if "alert" in rule]


def test_the_fleet_keeps_every_series_that_a_rule_reads() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    read = {name for rule in rules() for name in series_of(rule["expr"]) - {""}} - recorded
    jobs = scrape_config.config(Path("targets.json"), Path("rules.yml"))["scrape_configs"]
    kept = [job["metric_relabel_configs"][0]["regex"] for job in jobs]
    lost = {name for name in read if not any(re.fullmatch(names, name) for names in kept)}
    # No machine without a GPU has its exporter.
    assert {name for name in lost if not name.startswith("DCGM_")} == set()
    assert {name for name in read if metric_of(name) is None} == set()


def test_starts_of_an_image_whose_entrypoint_is_not_ours_are_promised_by_nobody() -> None:
    start = SloSpec.model_validate({"name": "start", "objective": 95, "start": {"below": "5m"}})
    ttft = SloSpec.model_validate({"name": "ttft", "objective": 99, "ttft": {"below": "250ms"}})
    assert not list(untold_by_engine([ttft, start], {}, prebuilt=False))
    (odd,) = untold_by_engine([ttft, start], {}, prebuilt=True)
    assert (odd.where, odd.found) == (("slos", 1, "start"), "an SLO on starts with `engine.image`")


PROMISING = """\
apiVersion: tidegate/v1
kind: Delivery
metadata: {name: support-llm}
model: {name: support-llm}
engine: {vllm: {version: 0.32.0}}
gates: {latency: {}, errors: {}}
stages: [{canary: {}}]
regions: {waves: [[eu-west-1]]}
"""

PROMISES = """\
slos:
  - {name: availability, objective: 99.9, errors: {}}
  - {name: ttft, objective: 99, ttft: {below: 250ms}, window: 28d}
cost: {per_engine_hour: 2.50, budget_per_month: 4000}
"""


def read(text: str) -> Delivery:
    return parse_spec(text, Delivery, file="delivery.yaml")


BETWEEN = PROMISES.replace("250ms", "200ms")


def with_args(text: str) -> str:
    return PROMISING.replace("version: 0.32.0", f"version: 0.32.0, args: {{{text}}}")


def test_engines_count_at_the_thresholds_of_their_spec() -> None:
    wanted = {"time_to_first_token": sorted({*TTFT.edges, 0.2})}
    assert read(PROMISING + BETWEEN).engine.vllm.args == {BUCKETS: wanted}
    assert read(PROMISING + PROMISES).engine.vllm.args == {}, "vLLM's own edges are there by themselves"
    own = f"{BUCKETS}: {{time_to_first_token: [0.1, 0.2], inter_token_latency: [1]}}"
    assert read(with_args(own) + BETWEEN).engine.vllm.args[BUCKETS] == yaml.safe_load(own)[BUCKETS]


FLEET = "fleet: " + json.dumps(a_fleet("eu-west-1", "us-east-1").model_dump(mode="json", exclude_unset=True))
OTHERS = "{preset: istio, arms: {stable: a, canary: b, shadow: b}}"


def test_from_the_first_promotion_to_the_alias() -> None:
    # Two bakes of 10 s, and one later wave: a shadow of 2 min, two weights of 5 min each.
    assert promotion_window(a_spec()) == timedelta(seconds=20) + 2 * SLACK + timedelta(minutes=12)


def test_the_alert_waits_longer_for_the_alias_of_the_spec() -> None:
    spec = a_spec(model="model: {name: support-llm, from: next, to: production}")
    (group,) = agreement_of(spec)
    (alert,) = group.rules
    assert 'alias="production"' in alert.expr
    assert alert.hold and alert.hold > promotion_window(spec)


@pytest.mark.parametrize(
    ("source", "known"),
    [
        ("{preset: vllm}", True),
        (f"{{preset: vllm, signals: [ttft, itl]}}, {OTHERS}", False),
        ("{preset: vllm, arms: {label: track, stable: a, canary: b, shadow: b}}", False),
    ],
)
def test_regions_whose_engines_do_not_tell_their_version_are_not_compared(source: str, known: bool) -> None:
    text = f"{SPEC}{FLEET}\nmetrics: {{sources: [{source}]}}\n"
    assert bool(agreement_of(parse_spec(text, Delivery, file="d.yaml"))) is known
