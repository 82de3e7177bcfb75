"""Rollouts that the controller refuses, and that it takes again once they are right."""

from __future__ import annotations

import copy

import pytest
from fakes.argo.scene import GATEWAY, STEPS, Scene, blue_green, canary

from rollouts.kube.model import Json
from rollouts.kube.resources import HTTP_ROUTES, SERVICES

WRONG: list[tuple[str, Json, str]] = [
    ("no strategy", {}, "Rollout has missing field '.spec.strategy.canary or .spec.strategy.blueGreen'"),
    ("two strategies", canary() | blue_green(), "Multiple Strategies can not be listed"),
    ("one service", canary(canaryService="llm-stable"), "uses the same service for the stable and canary services"),
    ("no service", canary(canaryService=None), "missing field 'spec.strategy.canary.canaryService'"),
    ("unknown service", canary(stableService="typo"), 'service "typo" not found'),
    ("weight", canary(steps=[{"setWeight": 140}]), "SetWeight needs to be between 0 and 100"),
    ("empty step", canary(steps=[{}]), "Step must have one of the following set"),
    ("scale", canary(trafficRouting=None, steps=STEPS), "SetCanaryScale requires TrafficRouting to be set"),
    ("delay", canary(trafficRouting=None, steps=[], scaleDownDelaySeconds=9), "can only be used with traffic routing"),
    ("both", canary(dynamicStableScale=True, scaleDownDelaySeconds=9), "cannot be used with scaleDownDelaySeconds"),
    ("no surge", canary(maxSurge=0, maxUnavailable=0), "MaxSurge and MaxUnavailable both can not be zero"),
    ("route", canary(trafficRouting=GATEWAY, steps=[{"setHeaderRoute": {"name": "x"}}]), "managedRoutes"),
    ("template", canary(analysis={"templates": [{"templateName": "slo"}]}), "AnalysisTemplate 'slo' not found"),
    ("virtual service", canary(trafficRouting={"istio": {"virtualService": {"name": "x"}}}), '"x" not found'),
    ("colours", blue_green(previewService="llm-stable"), "same service for the active and preview services"),
]


@pytest.mark.parametrize(("strategy", "says"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_a_wrong_rollout_is_degraded_and_left_alone(strategy: Json, says: str) -> None:
    scene = Scene(copy.deepcopy(strategy) or {"other": None})
    assert scene.phase.startswith('Degraded InvalidSpec: The Rollout "llm" is invalid: ')
    assert says in scene.phase
    assert scene.status["observedGeneration"] == "1"
    assert scene.pods == {}


def test_a_service_of_another_rollout_is_refused() -> None:
    scene = Scene(ready=False)
    owner = {"argo-rollouts.argoproj.io/managed-by-rollouts": "other"}
    scene.cluster.edit(SERVICES, "llm-stable", lambda body: body["metadata"].update(annotations=owner))
    scene.wait(1)
    assert 'Service "llm-stable" is managed by another Rollout' in scene.phase


def test_it_goes_on_once_what_was_missing_is_there() -> None:
    scene = Scene(canary(stableService="late"))
    assert scene.phase.startswith("Degraded")
    body = scene.cluster.get(SERVICES, "llm-stable")
    late = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "late"}, "spec": body["spec"]}
    scene.cluster.create(SERVICES, late)
    scene.cluster.edit(
        HTTP_ROUTES, "llm", lambda route: route["spec"]["rules"][0]["backendRefs"][0].update(name="late")
    )
    scene.wait(30)
    assert scene.phase == "Healthy"


def test_what_is_not_simulated_says_so() -> None:
    with pytest.raises(NotImplementedError, match="no experiment steps"):
        Scene(canary(steps=[{"experiment": {"templates": []}}]))
