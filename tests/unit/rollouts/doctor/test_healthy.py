"""No false alarms: nothing is found in a healthy region, whatever it is doing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fakes.clusters.doctor_region import CONTROLLER, NAME, Region, fleet, trial

from rollouts.doctor.model import EvidenceQuery, Severity
from rollouts.kube.resources import ADMISSION_POLICIES, DEPLOYMENTS, HTTP_ROUTES, ROLLOUTS
from tidegate.core.adapters.prometheus import PrometheusRefused
from tidegate.core.model import Json

QUIET: list[Callable[[], Region]] = []


def quiet(begin: Callable[[], Region]) -> Callable[[], Region]:
    """A region in which nothing is found."""
    QUIET.append(begin)
    return begin


@quiet
def one_engine_with_an_autoscaler_and_a_warm_pool() -> Region:
    return Region(fleet(warm_pool={"share": "50%"}, autoscale={"min_replicas": 1, "max_replicas": 4}))


@quiet
def a_version_that_was_just_promoted_with_the_last_one_kept_warm() -> Region:
    region = trial()
    region.cluster.patch(ROLLOUTS, NAME, {"status": {"promoteFull": True}}, subresource="status")
    region.wait(120)
    assert region.cluster.get(ROLLOUTS, NAME)["status"]["phase"] == "Healthy"
    return region


@quiet
def a_canary_that_was_aborted_and_its_template_set_back() -> Region:
    region = trial()
    region.cluster.patch(ROLLOUTS, NAME, {"status": {"abort": True}}, subresource="status")
    region.wait(60)
    region.deploy("7")
    region.wait(600)
    return region


@quiet
def engines_that_have_loaded_for_twenty_minutes() -> Region:
    region = Region()
    region.simulation.slow("8", 1500)
    region.deploy("8")
    region.wait(1200)
    return region


@quiet
def a_rollout_that_somebody_paused() -> Region:
    region = Region()
    region.edit(ROLLOUTS, NAME, lambda it: it["spec"].update(paused=True))
    region.wait(3 * 86400)
    return region


@quiet
def a_canary_that_gets_copies() -> Region:
    region = trial()
    copy = {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": f"{NAME}-canary", "port": 80}}}
    region.edit(HTTP_ROUTES, NAME, lambda it: it["spec"]["rules"][0].update(filters=[copy]))
    return region


@quiet
def a_change_that_the_controller_has_not_seen_for_a_second() -> Region:
    region = Region()
    region.simulation.controller_down = True
    region.deploy("8")
    region.wait(1)
    return region


@quiet
def a_node_that_is_being_bought() -> Region:
    region = Region()
    region.deploy("8")
    region.wait(60)
    region.without_a_node("8")
    region.wait(300)
    return region


@quiet
def clocks_two_seconds_apart_and_another_rollout_in_the_controllers_log() -> Region:
    region = Region()
    region.api.clock_skew_seconds = -2
    region.log = ['level=error msg="roCtx.reconcile err rpc error: connection is shut down" rollout=other']
    return region


@quiet
def what_a_server_adds_to_an_admission_policy() -> Region:
    def default(it: Json) -> None:
        constraints = it["spec"]["matchConstraints"]
        constraints.update(matchPolicy="Equivalent")
        constraints.setdefault("objectSelector", {})
        constraints["resourceRules"][0]["scope"] = "*"

    region = Region()
    region.edit(ADMISSION_POLICIES, f"llm.{NAME}-rollouts", default)
    return region


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("changes(", (4.9,)),
        ("changes(", (float("nan"),)),
        ("changes(", PrometheusRefused("no subqueries")),
    ],
)
async def test_nothing_is_found_in_these_answers_of_prometheus(
    word: str, answer: tuple[float, ...] | Exception
) -> None:
    region = Region()
    region.questions = (EvidenceQuery(asked_by="gate latency", query="up"),)
    region.prometheus.answers[word] = answer
    assert await region.examined() == ()


@pytest.mark.parametrize("begin", QUIET, ids=lambda begin: begin.__name__)
async def test_nothing_is_found(begin: Callable[[], Region]) -> None:
    assert await begin().examined() == ()


@pytest.mark.parametrize("traffic", ["gateway-api", "istio"])
async def test_nothing_is_found_from_one_version_to_the_last_pause_of_the_next(traffic: str) -> None:
    region = Region(fleet(traffic=traffic))
    assert await region.examined(rights=True) == ()
    region.deploy("8")
    pauses = []
    for _ in range(4):
        region.wait(60)
        status = region.cluster.get(ROLLOUTS, NAME)["status"]
        pauses.append((status["phase"], status["currentStepIndex"]))
        assert await region.examined() == ()
        region.promote_step()
    assert pauses == [("Paused", 1), ("Paused", 3), ("Paused", 5), ("Paused", 7)]


async def test_a_controller_elsewhere_is_not_looked_at() -> None:
    """Its status tells that it has seen the Rollout."""
    region = Region()
    region.cluster.delete(DEPLOYMENTS, "argo-rollouts", namespace=CONTROLLER)
    region.wait(120)
    (found,) = await region.examined()
    assert (found.code, found.severity) == ("not-looked-at", Severity.NOTE)
    assert found.evidence == (f"the controller, which works and is not in namespace {CONTROLLER}",)
