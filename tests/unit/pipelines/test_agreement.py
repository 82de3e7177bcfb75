"""How long registry and regions may differ because of a delivery."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from fakes.clusters.region import a_fleet
from fakes.delivery.world import SPEC, a_spec

from pipelines.plan.slo_export import SLACK, agreement_of, promotion_window
from pipelines.spec.delivery import Delivery
from tidegate.core.spec import parse_spec

FLEET = "fleet: " + json.dumps(a_fleet("eu-west-1", "us-east-1").model_dump(mode="json", exclude_unset=True))
OTHERS = "{preset: istio, arms: {stable: a, canary: b, shadow: b}}"


def test_from_the_first_promotion_to_the_alias() -> None:
    # Two bakes of 10 s, and one later wave: a shadow of 2 min, two weights of 5 min each.
    assert promotion_window(a_spec()) == timedelta(seconds=20) + 2 * SLACK + timedelta(minutes=12)


def test_one_wave_is_a_bake() -> None:
    one = a_spec(regions="regions: {waves: [[eu-west-1, us-east-1]], bake: 30m}")
    assert promotion_window(one) == timedelta(minutes=30) + SLACK


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
