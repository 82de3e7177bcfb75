"""Steps in words."""

from __future__ import annotations

from typing import Any

import pytest

from rollouts.argo.model import step_text


@pytest.mark.parametrize(
    ("step", "text"),
    [
        ({"setWeight": 20}, "setWeight: 20"),
        ({"setWeight": 0}, "setWeight: 0"),
        ({"pause": {}}, "pause"),
        ({"pause": {"duration": 10}}, "pause: 10"),
        ({"pause": {"duration": "10s"}}, "pause: 10s"),
        ({"experiment": {"templates": []}}, "experiment"),
        ({"analysis": {"templates": []}}, "analysis"),
        ({"setCanaryScale": {"weight": 20}}, "setCanaryScale{weight: 20}"),
        ({"setCanaryScale": {"matchTrafficWeight": True}}, "setCanaryScale{matchTrafficWeight: true}"),
        ({"setCanaryScale": {"replicas": 5}}, "setCanaryScale{replicas: 5}"),
        ({"setHeaderRoute": {"name": "beta", "match": []}}, "setHeaderRoute: beta"),
        ({"setMirrorRoute": {"name": "shadow", "percentage": 100}}, "setMirrorRoute: shadow"),
        ({"plugin": {"name": "argoproj-labs/step"}}, "plugin: argoproj-labs/step"),
        ({}, "invalid"),
    ],
)
def test_a_step_in_words(step: dict[str, Any], text: str) -> None:
    assert step_text(step) == text
