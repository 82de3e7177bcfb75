"""Objects of others under a delivery's names: told, never written to; and no Service loses an engine by our writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from fakes.clusters.region import NAME, NAMESPACE, PODS_OF_OTHERS, ClusterRegion, Endpoints, a_fleet, an_image, moved_in
from fakes.kube.refusal import Refusal
from fakes.kube.requests import WRITES, Fault, LoseAnswer, Meanwhile, Refuse

from rollouts.cluster.fleet import ArgoFleet
from rollouts.errors import FleetError, Forbidden, NotOurs, Unfit
from rollouts.kube.resources import HTTP_ROUTES, POD_DISRUPTION_BUDGETS, ROLLOUTS, SERVICES, resource_of
from rollouts.manifests.conventions import stable_service
from rollouts.model import RegionPhase, RegionState
from tidegate.core.errors import ExitCode, Refused
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY

STABLE = stable_service(NAME)
ROLLOUT = f"Rollout {NAME} in {NAMESPACE} is not tidegate's (managed by Helm release chat; last written by helm)"

OPERATIONS: dict[str, Callable[[ArgoFleet], Awaitable[RegionState]]] = {
    "deploy": lambda fleet: fleet.deploy(an_image("1")),
    "mirror": lambda fleet: fleet.mirror(100),
    "shift": lambda fleet: fleet.shift(50),
    "promote": lambda fleet: fleet.promote(),
    "rollback": lambda fleet: fleet.rollback("1"),
}


def written(region: ClusterRegion) -> list[str]:
    return [f"{call.verb} {call.plural}/{call.name}" for call in region.api.calls if call.verb in WRITES]


@pytest.fixture
async def occupied() -> ClusterRegion:
    """A region in which a release of Helm's has the delivery's names, and serves."""
    region = ClusterRegion()
    moved_in(region.cluster, NAME, NAMESPACE)
    await region.time.sleep(60)
    return region


class TestAReleaseOfHelmThatServes:
    async def test_the_region_is_not_empty_but_unknown_and_says_whose_it_is(self, occupied: ClusterRegion) -> None:
        state = await occupied.fleet.observe()
        assert (state.phase, state.stable) == (RegionPhase.UNKNOWN, None)
        assert state.problem
        assert ROLLOUT in state.problem
        assert f"its {PODS_OF_OTHERS} pods may serve" in state.problem

    @pytest.mark.parametrize("operation", OPERATIONS)
    async def test_every_operation_is_refused_and_nothing_is_written(
        self, occupied: ClusterRegion, operation: str
    ) -> None:
        endpoints = Endpoints(occupied.cluster)
        with pytest.raises(NotOurs) as caught:
            await OPERATIONS[operation](occupied.fleet)
        assert ROLLOUT in str(caught.value)
        assert caught.value.exit_code == ExitCode.USAGE
        assert written(occupied) == []
        await occupied.time.sleep(60)
        assert (endpoints.of(STABLE), endpoints.lost) == (PODS_OF_OTHERS, [])


async def test_what_the_api_server_does_not_take_is_told_before_anything_is_written() -> None:
    region = ClusterRegion()
    place, client, image = region.place(60.0), region.client(), an_image("1")
    fleet = ArgoFleet(place, cluster=client, clock=region.time, render=region.render, tried=image)
    assert await fleet.foreign_objects() == ()
    unknown = Refusal(400, "BadRequest", 'strict decoding error: unknown field "spec.template.spec.imagePulPolicy"')
    region.api.faults.add(Fault(Refuse(unknown), verbs=("patch",), plural="rollouts"))
    with pytest.raises(Unfit, match=r"PATCH rollouts/support-llm: .*imagePulPolicy"):
        await fleet.foreign_objects()
    assert region.cluster.list(SERVICES) == region.cluster.list(ROLLOUTS) == []


def everything() -> list[Json]:
    """Every kind of object that a delivery applies."""
    return list(ClusterRegion(spec=SCALED).plainly(an_image("1")))


SCALED = a_fleet("eu-west-1", autoscale={"min_replicas": 1, "max_replicas": 4}, warm_pool={})


@pytest.mark.parametrize("manifest", everything(), ids=lambda each: f"{each['kind']} {each['metadata']['name']}")
async def test_one_object_of_somebody_else_is_enough_of_whatever_kind(manifest: Json) -> None:
    region = ClusterRegion(spec=SCALED)
    theirs = {**manifest, "metadata": {"name": manifest["metadata"]["name"], "namespace": NAMESPACE}}
    region.cluster.create(resource_of(theirs), theirs, manager="kubectl-create")
    with pytest.raises(NotOurs, match=rf"{manifest['kind']} \S+ in {NAMESPACE} .*last written by kubectl-create"):
        await region.fleet.deploy(an_image("1"))
    assert written(region) == []


class TestOneThatComesInBetween:
    """Somebody makes objects of our names after all was looked at."""

    async def test_it_is_not_taken_over(self) -> None:
        region = ClusterRegion()
        endpoints = Endpoints(region.cluster)
        rival = Meanwhile(lambda _: moved_in(region.cluster, NAME, NAMESPACE))
        region.api.faults.add(Fault(rival, verbs=WRITES, plural=SERVICES.plural))
        with pytest.raises(NotOurs, match="managed by Helm release chat"):
            await region.fleet.deploy(an_image("1"))
        await region.time.sleep(60)
        assert (endpoints.taken_over, endpoints.lost) == ([], [])
        assert endpoints.of(STABLE) == PODS_OF_OTHERS

    async def test_what_was_written_before_it_came_goes(self) -> None:
        region = ClusterRegion()
        theirs = {"metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": {"minAvailable": 1}}

        def rival(_: object) -> None:
            budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", **theirs}
            region.cluster.create(POD_DISRUPTION_BUDGETS, budget, manager="helm")

        region.api.faults.add(Fault(Meanwhile(rival), verbs=WRITES, plural=POD_DISRUPTION_BUDGETS.plural))
        with pytest.raises(NotOurs, match="PodDisruptionBudget"):
            await region.fleet.deploy(an_image("1"))
        assert region.cluster.list(SERVICES) == []
        assert region.cluster.list(HTTP_ROUTES) == []
        assert region.cluster.get(POD_DISRUPTION_BUDGETS, NAME)["spec"] == theirs["spec"]


def refused(region: ClusterRegion, *, meanwhile: Callable[[], object] = lambda: None) -> None:
    """The API server takes the next Rollout not, as a policy would have it."""

    def refuse(_: object) -> None:
        meanwhile()
        raise Refusal(403, "Forbidden", "a policy does not take it")

    region.api.faults.add(Fault(Meanwhile(refuse), verbs=WRITES, plural=ROLLOUTS.plural))


class TestARefusalInTheMiddle:
    @pytest.fixture
    async def serving(self) -> ClusterRegion:
        """A region that serves version 1, and whose spec then asks for another disruption budget."""
        region = ClusterRegion(spec=a_fleet("eu-west-1", replicas=4))
        await region.fleet.deploy(an_image("1"))
        region.spec = a_fleet("eu-west-1", replicas=4, unavailable=2)
        return region

    async def test_what_was_written_before_is_put_back(self, serving: ClusterRegion) -> None:
        refused(serving)
        with pytest.raises(Forbidden, match="a policy does not take it") as caught:
            await serving.fleet.deploy(an_image("2"))
        assert budget(serving) == 1
        assert "put back" not in str(caught.value)

    async def test_what_was_brought_before_goes_again(self) -> None:
        region = ClusterRegion()
        refused(region)
        with pytest.raises(Forbidden):
            await region.fleet.deploy(an_image("1"))
        for resource in (SERVICES, HTTP_ROUTES, POD_DISRUPTION_BUDGETS):
            assert region.cluster.list(resource) == []

    async def test_a_region_that_goes_away_in_that_moment_is_waited_for(self, serving: ClusterRegion) -> None:
        def away() -> None:
            serving.api.vanish()
            serving.time.call_later(40, serving.api.come_back)

        refused(serving, meanwhile=away)
        with pytest.raises(Forbidden):
            await serving.fleet.deploy(an_image("2"))
        assert budget(serving) == 1

    async def test_what_cannot_be_put_back_is_told(self, serving: ClusterRegion) -> None:
        refused(serving, meanwhile=serving.api.vanish)
        with pytest.raises(Forbidden) as caught:
            await serving.fleet.deploy(an_image("2"))
        assert f"could not be put back as it was: Rollout {NAME} (" in str(caught.value)
        assert f"PodDisruptionBudget {NAME} (" in str(caught.value)
        assert budget(serving) == 2

    async def test_what_somebody_wrote_since_is_theirs(self, serving: ClusterRegion) -> None:
        def theirs() -> None:
            more = {"spec": {"maxUnavailable": 3}}
            serving.cluster.patch(POD_DISRUPTION_BUDGETS, NAME, more, manager="kubectl-edit")

        refused(serving, meanwhile=theirs)
        with pytest.raises(Forbidden, match=f"PodDisruptionBudget {NAME} \\(written by kubectl-edit since"):
            await serving.fleet.deploy(an_image("2"))
        assert budget(serving) == 3

    async def test_a_rollout_that_was_taken_and_not_answered_keeps_all_of_it(self, serving: ClusterRegion) -> None:
        serving.api.faults.add(Fault(LoseAnswer(), verbs=("update",), plural=ROLLOUTS.plural))
        assert (await serving.fleet.deploy(an_image("2"))).phase is RegionPhase.TRIAL
        assert budget(serving) == 2


def budget(region: ClusterRegion) -> int:
    return int(region.cluster.get(POD_DISRUPTION_BUDGETS, NAME)["spec"]["maxUnavailable"])


class TestAServiceKeepsItsEngines:
    async def test_one_of_ours_that_somebody_gave_other_pods_is_not_taken_from_them(
        self, occupied: ClusterRegion
    ) -> None:
        """As half-way through a migration: labelled as ours, and it selects pods that are not."""
        region, endpoints = occupied, Endpoints(occupied.cluster)
        for resource, name in ((SERVICES, STABLE), (SERVICES, f"{NAME}-canary"), (HTTP_ROUTES, NAME)):
            region.cluster.patch(resource, name, {"metadata": {"labels": {DELIVERY: NAME}}}, manager="kubectl-label")
        region.cluster.delete(ROLLOUTS, NAME, propagation="Orphan")
        with pytest.raises(Refused) as caught:
            await region.fleet.deploy(an_image("1"))
        assert f"Service {STABLE} selects 4 engines that are ready, and would select 0" in str(caught.value)
        assert caught.value.exit_code == ExitCode.USAGE
        assert [each for each in written(region) if SERVICES.plural in each] == []
        assert (endpoints.lost, endpoints.of(STABLE)) == ([], PODS_OF_OTHERS)

    async def test_the_way_back_sends_nobody_to_a_stable_without_engines(self) -> None:
        region = ClusterRegion()
        await region.fleet.deploy(an_image("1"))
        await region.fleet.deploy(an_image("2"))
        await region.fleet.shift(50)
        region.simulation.crash("1")
        await region.time.sleep(60)
        region.simulation.controller_down = True
        with pytest.raises(FleetError):
            await region.fleet.rollback("1")
        assert region.splits[-1] == (50, 0)
