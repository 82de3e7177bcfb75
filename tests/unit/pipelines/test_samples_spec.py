"""Samples of users' requests in a spec: who asks for them, who has none, and what a plan makes of it."""

from __future__ import annotations

import pytest
from fakes.delivery.world import SPEC, a_spec

from engine_images.samples.key import REDACTED
from gates.evidence.batch import USUAL_LOOK
from gates.traffic import Exposure
from pipelines.plan.gates import canary_traffic
from pipelines.spec.delivery import Delivery
from pipelines.spec.sections import SamplesSpec
from tidegate.core.spec import SpecError, parse_spec

JUDGE = "  judge: {endpoint: 'http://127.0.0.1:9/v1', model: judge}"
SHADOW = "  - shadow: {at_least: 10s, within: 2m, gates: [errors]}"
CANARY = "  - canary: {weights: [10, 50], within: 5m, gates: [errors, judge]}"
CLUSTERS = """
fleet:
  kind: argo
  namespace: support
  gateway: {name: public, hosts: [support.example]}
  regions:
    eu-west-1: {context: eu, <<: &at {entry: https://e.example, stable_url: https://s.example,
      canary_url: https://c.example, prometheus: https://p.example}}
    us-east-1: {context: us, <<: *at}
"""


def spec(text: str) -> Delivery:
    return parse_spec(text, Delivery, file="delivery.yaml")


def problems(text: str) -> list[str]:
    with pytest.raises(SpecError) as refused:
        spec(text)
    return [str(problem) for problem in refused.value.problems]


def with_judge(more: str = "", canary: str = CANARY) -> str:
    lines = [JUDGE if line.startswith("  agreement") else line for line in SPEC.splitlines()]
    lines = [canary if line.startswith("  - canary") else line for line in lines]
    lines = [SHADOW if line.startswith("  - shadow") else line for line in lines]
    return "\n".join(lines) + "\n" + more


def test_the_judge_of_a_canary_needs_samples() -> None:
    at = with_judge().splitlines().index(CANARY) + 1
    assert problems(with_judge()) == [
        f"delivery.yaml:{at}: stages[2].canary.gates[1]: found 'judge' of users' answers, and nobody keeps any; "
        "expected a section `samples`, or the gate in shadow alone"
    ]
    assert spec(with_judge("samples: {}\n")).samples == SamplesSpec()


def test_clusters_have_samples_of_engines_that_tidegate_builds_and_no_drift() -> None:
    asked = with_judge("samples: {share: 10%}\n") + CLUSTERS
    assert spec(asked).samples == SamplesSpec(share=0.1)
    others = asked.replace("engine: {", f"engine: {{image: 'registry.example/vllm@sha256:{'6' * 64}', ", 1)
    assert any("samples: found samples of users' requests with `engine.image`" in each for each in problems(others))
    drift = with_judge(canary="  - canary: {gates: [errors, drift]}").replace(JUDGE, "  drift: {outputs: [length]}")
    assert spec(drift).gates.drift is not None
    assert any(
        "gates[1]: found 'drift' in clusters, where nobody writes down what users ask" in each
        for each in problems(drift + CLUSTERS)
    )


def test_it_says_what_is_taken_out_and_for_how_long() -> None:
    text = with_judge("samples: {redact: [email, phone], words: [ACME], keep: 1m, max_megabytes: 4}\n")
    samples = spec(text).samples
    assert samples is not None
    assert (samples.redact, samples.words, samples.keep.total_seconds()) == (("email", "phone"), ("ACME",), 60.0)
    assert SamplesSpec().redact == REDACTED
    assert any("redact[0]" in each for each in problems(with_judge("samples: {redact: [passport]}\n")))


@pytest.mark.parametrize(
    ("weight", "stable", "canary"), [(5, 0.05 / 2 / 0.95, 0.5), (1, 0.05 / 2 / 0.99, 1.0), (50, 0.05, 0.05)]
)
def test_half_of_a_sample_is_of_each_arm_as_far_as_it_has_so_many(weight: int, stable: float, canary: float) -> None:
    samples = SamplesSpec()
    assert samples.share_of(1 - weight / 100) == pytest.approx(stable)
    assert samples.share_of(weight / 100) == pytest.approx(canary)


@pytest.mark.parametrize(("percent", "pairs"), [(10, 5.0), (50, 5.0), (1, 2.0)])
def test_a_plan_knows_how_many_answers_are_judged(percent: int, pairs: float) -> None:
    exposure = Exposure(requests_per_second=200, percent=percent, sampled=0.05, within_seconds=60)
    assert exposure.arrivals("samples").canary == pytest.approx(pairs)
    assert exposure.timed("samples")


def test_a_plans_traffic_is_that_of_the_spec() -> None:
    assert canary_traffic(spec(with_judge("samples: {share: 20%}\n")), 10).sampled == pytest.approx(0.2)
    assert canary_traffic(a_spec(), 10).look_seconds == USUAL_LOOK.total_seconds()
