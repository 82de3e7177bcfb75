"""A burn-rate gate on an SLO: its objective, its alert's factors, its events, and windows as long as the stage."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from fakes.clusters.region import a_fleet
from fakes.delivery.world import CHALLENGER, CHAMPION, SPEC, a_version

from gates.analyses.burn_rate import BurnRateGate, BurnWindows
from pipelines.errors import PlanRefused
from pipelines.plan.gates import gates_in, gates_within
from pipelines.plan.planner import make_plan
from pipelines.spec.delivery import Delivery
from tidegate.core.spec import parse_spec
from tidegate.core.units import format_duration

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

InStage = Callable[[str], BurnRateGate]


def a_spec(burn: str, slos: str = SLOS) -> Delivery:
    text = SPEC.replace("stages:", f"  burn_rate: {burn}\nstages:").replace(
        "within: 5m", "within: 6m, gates: [burn_rate]"
    )
    return parse_spec(text + slos, Delivery, file="delivery.yaml")


def in_canary(burn: str, stage: str = "canary") -> BurnRateGate:
    """As the canary stage of six minutes asks it."""
    spec = a_spec(burn)
    gate = gates_in(spec, getattr(spec, stage)).burn_rate
    assert gate is not None
    return gate


def in_shadow(burn: str) -> BurnRateGate:
    return in_canary(burn, "shadow")


def windows(pair: BurnWindows) -> str:
    return f"{format_duration(pair.short)} in {format_duration(pair.long)}, {pair.factor:.4g}"


def test_the_objective_and_the_factors_are_those_of_the_slo() -> None:
    gate = in_canary("{slo: availability}")
    assert (gate.slo, gate.objective, gate.budget) == ("availability", 0.999, 0.001)
    assert (gate.fast.factor, gate.slow.factor) == (14.4, 6)
    assert in_canary("{slo: served}").fast.factor == pytest.approx(13.44), "2 % of 28 days in an hour"


def test_windows_are_as_long_as_the_stage_and_keep_their_ratios() -> None:
    gate = in_canary("{slo: availability}")
    assert windows(gate.slow) == "30s in 6m, 6"
    assert windows(gate.fast) == "10s in 1m, 14.4", "no window is shorter than a look"
    assert gate.fast.long * 6 == gate.slow.long


def test_windows_that_were_written_out_stay() -> None:
    gate = in_canary("{slo: availability, fast: {short: 20s, long: 2m, factor: 10}}")
    assert windows(gate.fast) == "20s in 2m, 10"
    assert windows(gate.slow) == "30s in 6m, 6"
    both = "fast: {short: 20s, long: 2m, factor: 10}, slow: {short: 1m, long: 9m, factor: 3}"
    assert windows(in_canary(f"{{slo: availability, {both}}}").slow) == "1m in 9m, 3"


def test_the_shortest_stage_still_has_two_windows() -> None:
    gate = gates_within(a_spec("{objective: 99%}"), timedelta(seconds=30)).burn_rate
    assert gate is not None
    assert windows(gate.fast) == "10s in 20s, 14.4"
    assert gate.fast.short < gate.fast.long


@pytest.mark.parametrize("where", [in_canary, in_shadow])
def test_failed_requests_are_those_that_the_proxy_counted(where: InStage) -> None:
    gate = where("{slo: availability}")
    assert (gate.slower, gate.errors_query, gate.total_query) == (None, None, None)


@pytest.mark.parametrize(("slo", "metric", "than"), [("ttft", "ttft", "250ms"), ("speed", "itl", "50ms")])
def test_times_are_those_of_the_engines_histograms(slo: str, metric: str, than: str) -> None:
    slower = in_canary(f"{{slo: {slo}}}").slower
    assert slower is not None
    assert (slower.metric, format_duration(slower.than)) == (metric, than)


@pytest.mark.parametrize(
    ("where", "slo", "metric"),
    [
        (in_canary, "served", "http_requests_total"),
        (in_canary, "queue", "vllm:request_queue_time_seconds"),
        # In shadow, engines cannot tell copies from anything else that reaches them.
        (in_shadow, "ttft", "vllm:time_to_first_token_seconds"),
    ],
)
def test_what_gates_do_not_read_themselves_is_asked_of_prometheus(where: InStage, slo: str, metric: str) -> None:
    gate = where(f"{{slo: {slo}}}")
    assert gate.errors_query and gate.total_query
    assert gate.errors_query.endswith("or vector(0)")
    for query in (gate.errors_query, gate.total_query):
        assert metric in query
        assert "{{.window}}" in query
        selected = [query.count(each) for each in ('service="', 'region="{{.region}}"', 'version="{{.version}}"')]
        assert selected == [query.count("[")] * 3
        assert "{{.role}}" not in query


def test_a_loose_slo_is_judged_by_factors_that_it_can_reach() -> None:
    fast, slow = "{short: 10s, long: 1m, factor: 5}", "{short: 30s, long: 6m, factor: 2}"
    assert in_canary(f"{{slo: loose, fast: {fast}, slow: {slow}}}").budget == 0.1


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
