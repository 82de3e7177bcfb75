"""A burn-rate gate on an SLO: its objective, its alert's factors, its events, and windows as long as the stage."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from fakes.clusters.region import a_fleet
from fakes.delivery.world import CHALLENGER, CHAMPION, SPEC, a_version
from fakes.golden import is_golden

from gates.analyses.burn_rate import BurnRateGate
from pipelines.errors import PlanRefused
from pipelines.plan.gates import gates_in, gates_within
from pipelines.plan.planner import make_plan
from pipelines.spec.delivery import Delivery
from tidegate.core.spec import parse_spec
from tidegate.core.yaml_text import yaml_text

GOLDEN = Path(__file__).parents[2] / "golden/slo_gates.txt"

SLOS = """
slos:
  - {name: availability, objective: 99.9, errors: {}}
  - {name: served, objective: 99, errors: {counted_by: engine}, window: 28d}
  - {name: ttft, objective: 95, ttft: {below: 250ms}}
  - {name: speed, objective: 95, tokens_per_second: {at_least: 20}}
  - {name: queue, objective: 95, queue_time: {below: 1s}}
  - {name: gaps, objective: 99, itl: {below: 50ms}}
  - {name: cache, objective: 99, kv_cache: {below: 90%}}
  - {name: loose, objective: 90, ttft: {below: 250ms}}
"""


def a_spec(burn: str, slos: str = SLOS) -> Delivery:
    text = SPEC.replace("stages:", f"  burn_rate: {burn}\nstages:").replace(
        "within: 5m", "within: 6m, gates: [burn_rate]"
    )
    return parse_spec(text + slos, Delivery, file="delivery.yaml")


FAST, SLOW = "fast: {short: 20s, long: 2m, factor: 10}", "slow: {short: 1m, long: 9m, factor: 3}"
LOOSE = "fast: {short: 10s, long: 1m, factor: 5}, slow: {short: 30s, long: 6m, factor: 2}"
CASES = (
    "canary: {slo: availability}",
    "shadow: {slo: availability}",
    "canary: {slo: served}",
    "canary: {slo: ttft}",
    # Engines cannot tell copies from anything else that reaches them.
    "shadow: {slo: ttft}",
    "canary: {slo: speed}",
    "canary: {slo: queue}",
    f"canary: {{slo: availability, {FAST}}}",
    f"canary: {{slo: availability, {FAST}, {SLOW}}}",
    f"canary: {{slo: loose, {LOOSE}}}",
)


def told(gate: BurnRateGate | None) -> str:
    """What a stage asks of it: windows, events, and questions."""
    assert gate is not None
    return yaml_text(gate.model_dump(mode="json", exclude_defaults=True))


def test_a_stage_of_six_minutes_asks_these_questions() -> None:
    """Windows keep their ratios, and none is shorter than a look; a gate asks Prometheus what it does not read."""
    shown = ""
    for case in CASES:
        stage, _, burn = case.partition(": ")
        spec = a_spec(burn)
        shown += f"# {case}\n{told(gates_in(spec, getattr(spec, stage)).burn_rate)}"
    shortest = gates_within(a_spec("{objective: 99%}"), timedelta(seconds=30)).burn_rate
    is_golden(f"{shown}# 30 s: {{objective: 99%}}\n{told(shortest)}", GOLDEN)


def test_a_stage_too_short_for_the_events_that_the_gate_needs_is_refused_before_anything_is_deployed() -> None:
    lines = [line for line in SPEC.splitlines() if "offline" not in line and "shadow" not in line]
    text = "\n".join(lines).replace("stages:", "  burn_rate: {slo: availability, min_events: 500}\nstages:")
    text = text.replace("within: 5m", "within: 6m, gates: [burn_rate]").replace("weights: [10, 50]", "weights: [10]")
    busy = parse_spec(text + SLOS, Delivery, file="delivery.yaml")
    quiet = parse_spec(text.replace("second: 200", "second: 10") + SLOS, Delivery, file="delivery.yaml")
    assert make_plan(busy, a_version(CHALLENGER), a_version(CHAMPION), prompts=12)
    with pytest.raises(PlanRefused, match=r"canary@eu-west-1/10: gate burn_rate needs about [\d,]+ requests") as caught:
        make_plan(quiet, a_version(CHALLENGER), a_version(CHAMPION), prompts=12)
    assert caught.value.hint and "`canary: {within: " in caught.value.hint


def test_in_a_cluster_failed_requests_are_those_that_the_engines_counted() -> None:
    spec = a_spec("{slo: availability}").model_copy(update={"fleet": a_fleet("eu-west-1", "us-east-1")})
    assert spec.canary is not None
    gate = gates_in(spec, spec.canary).burn_rate
    assert gate is not None
    assert (gate.errors_query, gate.slower) == (None, None)
