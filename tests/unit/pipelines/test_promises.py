"""The SLOs of a delivery, and what its engines cost, as `delivery.yaml` says them."""

from __future__ import annotations

import re

import pytest
import yaml

from pipelines.spec.delivery import Delivery
from slo.metrics import BUCKETS, TTFT
from tidegate.core.spec import SpecError, parse_spec

SPEC = """\
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


def test_every_problem_of_every_promise_is_told_at_its_line() -> None:
    wrong = PROMISES.replace("name: ttft", "name: availability").replace("28d", "29d")
    with pytest.raises(SpecError) as caught:
        read(SPEC + wrong)
    assert [str(problem) for problem in caught.value.problems] == [
        "delivery.yaml:11: slos[1].name: found availability twice; expected a name of its own for each SLO",
        "delivery.yaml:11: slos[1].window: found 29d; expected a period that has alert windows: 28d or 30d",
    ]


BETWEEN = PROMISES.replace("250ms", "200ms")


def with_args(text: str) -> str:
    return SPEC.replace("version: 0.32.0", f"version: 0.32.0, args: {{{text}}}")


def test_engines_count_at_the_thresholds_of_their_spec() -> None:
    wanted = {"time_to_first_token": sorted({*TTFT.edges, 0.2})}
    assert read(SPEC + BETWEEN).engine.vllm.args == {BUCKETS: wanted}
    assert read(SPEC + PROMISES).engine.vllm.args == {}, "vLLM's own edges are there by themselves"
    own = f"{BUCKETS}: {{time_to_first_token: [0.1, 0.2], inter_token_latency: [1]}}"
    assert read(with_args(own) + BETWEEN).engine.vllm.args[BUCKETS] == yaml.safe_load(own)[BUCKETS]


@pytest.mark.parametrize("lists", ["[0.1, 1]", "[]", "[0.25]"])
def test_lists_of_a_spec_s_own_have_its_thresholds(lists: str) -> None:
    found = "5: engine.vllm.args.custom-histogram-buckets: found no edge at 200ms in time_to_first_token; expected 0.2"
    with pytest.raises(SpecError, match=re.escape(found)):
        read(with_args(f"{BUCKETS}: {{time_to_first_token: {lists}}}") + BETWEEN)


def test_promises_need_the_metrics_that_they_are_made_on() -> None:
    text = with_args("disable-log-stats: true")
    assert read(text).slos == ()
    with pytest.raises(SpecError, match=r"engine\.vllm\.args\..*: found metrics that the SLOs are not written on"):
        read(text + PROMISES)
