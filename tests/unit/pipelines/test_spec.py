"""A right delivery.yaml needs little said."""

from __future__ import annotations

import pytest

from gates.analyses.agreement import AgreementGate
from pipelines.spec.delivery import Delivery
from tidegate.core.spec import parse_spec

SPEC = """\
apiVersion: tidegate/v1
kind: Delivery
metadata: {name: support-llm}
model: {name: support-llm}
engine: {vllm: {version: 0.32.0}}
gates: {latency: {}, errors: {}, quality: {}, agreement: {}}
stages:
  - offline: {dataset: golden.jsonl}
  - shadow: {}
  - canary: {}
regions: {waves: [[eu-west-1], [us-east-1, ap-south-1]]}
traffic: {requests_per_second: 2}
"""


def read(text: str) -> Delivery:
    return parse_spec(text, Delivery, file="delivery.yaml")


@pytest.mark.parametrize(
    ("percent", "weights", "share", "objective"),
    [
        ("100%", "[5%, 25%, 50%]", "60%", "99.9%"),
        ("100", "[5, 25, 50]", "0.6", "99.9"),
        ("100.0%", "[5, 25%, 50]", "60pp", "99.90%"),
    ],
)
def test_a_share_may_be_written_with_its_percent_sign_anywhere(
    percent: str, weights: str, share: str, objective: str
) -> None:
    text = SPEC.replace("shadow: {}", f"shadow: {{percent: {percent}}}").replace(
        "canary: {}", f"canary: {{weights: {weights}}}"
    )
    text = text.replace("agreement: {}", f"agreement: {{min_similarity: {share}}}")
    text += (
        f"approvals: [{{before: canary, weight: 25%}}]\nslos: [{{name: up, objective: {objective}, errors: {{}}}}]\n"
    )
    spec = read(text)
    assert spec.shadow
    assert spec.canary
    agreement = spec.gates.only(AgreementGate)
    assert agreement
    assert (spec.shadow.percent, spec.canary.weights, agreement.min_similarity) == (100, (5, 25, 50), 0.6)
    assert (spec.approvals[0].weight, spec.slos[0].objective) == (25, 99.9)
