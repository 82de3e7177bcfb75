"""The SLOs of a delivery, and what its engines cost, as `delivery.yaml` says them."""

from __future__ import annotations

import pytest

from pipelines.spec.delivery import Delivery
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
    wrong = PROMISES.replace("name: ttft", "name: availability").replace("250ms", "240ms")
    with pytest.raises(SpecError) as caught:
        read(SPEC + wrong)
    assert [str(problem) for problem in caught.value.problems] == [
        "delivery.yaml:11: slos[1].name: found availability twice; expected a name of its own for each SLO",
        "delivery.yaml:11: slos[1].ttft.below: found 240ms; expected an edge of vllm:time_to_first_token_seconds's "
        "buckets; the nearest: 100ms and 250ms",
    ]


@pytest.mark.parametrize(
    "argument", ["custom-histogram-buckets: {time_to_first_token: [0.2]}", "disable-log-stats: true"]
)
def test_promises_need_the_metrics_that_they_are_made_on(argument: str) -> None:
    text = SPEC.replace("version: 0.32.0", f"version: 0.32.0, args: {{{argument}}}")
    assert read(text).slos == ()
    with pytest.raises(SpecError, match=r"engine\.vllm\.args\..*: found metrics that the SLOs are not written on"):
        read(text + PROMISES)
