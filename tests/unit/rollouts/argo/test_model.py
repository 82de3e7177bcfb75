"""Steps in words, and pauses that end by themselves."""

from __future__ import annotations

from typing import Any

import pytest

from rollouts.argo.model import has_end, is_pause_timed, step_text


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


@pytest.mark.parametrize(
    ("duration", "ends"), [(60, True), ("60", True), ("1h30m", True), ("500ms", True), (None, False), ("soon", False)]
)
def test_a_pause_ends_after_seconds_or_a_duration_of_go(duration: object, ends: bool) -> None:
    assert has_end(duration) is ends


def paused(reason: str, *, strategy: dict[str, Any], index: int = 0, **spec: Any) -> dict[str, Any]:
    status = {"pauseConditions": [{"reason": reason, "startTime": "2026-11-21T12:00:00Z"}], "currentStepIndex": index}
    return {"metadata": {"name": "llm"}, "spec": {"strategy": strategy, **spec}, "status": status}


@pytest.mark.parametrize(
    ("rollout", "by_itself"),
    [
        (paused("CanaryPauseStep", strategy={"canary": {"steps": [{"pause": {"duration": "10m"}}]}}), True),
        (paused("CanaryPauseStep", strategy={"canary": {"steps": [{"pause": {}}]}}), False),
        (
            paused("CanaryPauseStep", strategy={"canary": {"steps": [{"pause": {"duration": 9}}]}}, paused=True),
            False,
        ),
        (paused("InconclusiveAnalysisRun", strategy={"canary": {"steps": [{"pause": {"duration": 9}}]}}), False),
        (paused("BlueGreenPause", strategy={"blueGreen": {"autoPromotionSeconds": 30}}), True),
        (paused("BlueGreenPause", strategy={"blueGreen": {"autoPromotionEnabled": False}}), False),
    ],
)
def test_which_pauses_end_by_themselves(rollout: dict[str, Any], by_itself: bool) -> None:
    assert is_pause_timed(rollout) is by_itself
