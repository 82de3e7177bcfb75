"""Analysis runs, as `rollout/analysis.go` has them."""

from __future__ import annotations

import pytest
from fakes.argo.scene import Scene, blue_green, canary

from rollouts.kube.resources import ANALYSIS_RUNS, ANALYSIS_TEMPLATES

ASK = {
    "templates": [{"templateName": "slo"}],
    "args": [{"name": "hash", "valueFrom": {"podTemplateHashValue": "Latest"}}],
}
STEPS = [{"setWeight": 50}, {"analysis": ASK}, {"setWeight": 75}, {"pause": {}}]
TEMPLATE = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "AnalysisTemplate",
    "metadata": {"name": "slo"},
    "spec": {
        "args": [{"name": "hash"}],
        "metrics": [{"name": "burn", "interval": "1m", "provider": {"prometheus": {"query": "up"}}}],
    },
}


def measured(strategy: dict[str, object], phase: str = "Running") -> Scene:
    scene = Scene(strategy, ready=False)
    scene.cluster.create(ANALYSIS_TEMPLATES, TEMPLATE)
    scene.simulation.analysis(phase)
    scene.wait(30)
    scene.deploy("2")
    scene.wait(30)
    return scene


def test_a_step_waits_for_its_analysis() -> None:
    scene = measured(canary(steps=STEPS))
    assert (scene.runs, scene.step) == ({"2-1": "Running"}, 1)
    assert scene.status["canary"]["currentStepAnalysisRunStatus"]["status"] == "Running"
    scene.simulation.analysis("Successful")
    scene.wait(30)
    assert (scene.runs, scene.step, scene.weight) == ({"2-1": "Successful"}, 3, 75)


def test_a_run_knows_whom_it_measures() -> None:
    scene = measured(canary(steps=STEPS))
    run = scene.cluster.list(ANALYSIS_RUNS)[0]
    assert run["spec"]["args"] == [{"name": "hash", "value": scene.status["currentPodHash"]}]
    assert run["spec"]["metrics"] == TEMPLATE["spec"]["metrics"]  # type: ignore[index]
    assert run["metadata"]["labels"]["rollout-type"] == "Step"


@pytest.mark.parametrize("phase", ["Failed", "Error"])
def test_a_failure_aborts(phase: str) -> None:
    scene = measured(canary(steps=STEPS))
    scene.simulation.analysis(phase, "Metric burn assessed Failed")
    scene.wait(1)
    assert scene.phase == ("Degraded RolloutAborted: Rollout aborted update to revision 2: Metric burn assessed Failed")
    assert (scene.weight, scene.step) == (0, 0)


def test_an_inconclusive_analysis_pauses_and_a_promotion_measures_again() -> None:
    scene = measured(canary(steps=STEPS))
    scene.simulation.analysis("Inconclusive")
    scene.wait(1)
    assert scene.phase == "Paused InconclusiveAnalysisRun"
    assert (scene.weight, scene.step) == (50, 1)
    scene.simulation.analysis("Successful")
    scene.resume()
    scene.wait(30)
    assert (scene.runs, scene.step) == ({"2-1": "Inconclusive", "2-1.1": "Successful"}, 3)


def test_promoting_past_an_inconclusive_analysis_skips_it() -> None:
    """The patch that argo-rollouts#3015 brought to `promote`."""
    scene = measured(canary(steps=STEPS))
    scene.simulation.analysis("Inconclusive")
    scene.wait(1)
    scene.say(pauseConditions=None, controllerPause=False, currentStepIndex=2)
    scene.wait(30)
    assert (scene.phase, scene.step) == ("Paused CanaryPauseStep", 3)


def test_a_background_analysis_aborts_wherever_the_canary_is() -> None:
    scene = measured(canary(analysis=ASK, steps=[{"setWeight": 50}, {"pause": {}}]))
    assert scene.runs == {"2": "Running"}
    scene.simulation.analysis("Failed", "burning")
    scene.wait(1)
    assert (scene.weight, scene.phase.split()[0]) == (0, "Degraded")


def test_a_background_analysis_may_start_later() -> None:
    scene = measured(
        canary(analysis=ASK | {"startingStep": 2}, steps=[{"setWeight": 5}, {"pause": {}}, {"setWeight": 50}])
    )
    assert scene.runs == {}
    scene.resume()
    assert scene.runs == {"2": "Running"}


def test_a_background_analysis_ends_with_the_rollout_and_counts_as_successful() -> None:
    scene = measured(canary(analysis=ASK, steps=[{"setWeight": 50}, {"pause": {}}]))
    scene.resume()
    scene.wait(60)
    assert (scene.phase, scene.runs) == ("Healthy", {"2": "Successful"})


def test_a_full_promotion_measures_nothing() -> None:
    scene = measured(canary(steps=STEPS))
    scene.promote_full()
    scene.wait(30)
    assert (scene.phase, scene.runs) == ("Healthy", {"2-1": "Successful"})


def test_a_retry_measures_again() -> None:
    scene = measured(canary(steps=STEPS))
    scene.simulation.analysis("Failed")
    scene.wait(60)
    scene.simulation.analysis("Running")
    scene.retry()
    scene.wait(30)
    assert scene.runs == {"2-1": "Failed", "2-1.1": "Running"}


def test_blue_green_measures_before_and_after_the_switch() -> None:
    scene = measured(blue_green(prePromotionAnalysis=ASK, postPromotionAnalysis=ASK))
    assert (scene.runs, scene.serves["stable"]) == ({"2-pre": "Running"}, "1")
    scene.simulation.analysis("Successful")
    scene.wait(1)
    assert scene.runs == {"2-pre": "Successful", "2-post": "Successful"}
    assert (scene.serves["stable"], scene.phase) == ("2", "Healthy")


def test_a_failure_after_the_switch_switches_back() -> None:
    scene = measured(blue_green(postPromotionAnalysis=ASK))
    assert (scene.serves["stable"], scene.phase) == ("2", "Progressing waiting for analysis to complete")
    scene.simulation.analysis("Failed")
    scene.wait(1)
    assert (scene.serves["stable"], scene.phase.split()[0]) == ("1", "Degraded")
