"""A Deployment of others is adopted by a Rollout next to it, delivered to, and given back as it was."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import pytest
from fakes.clusters.adoption import (
    DRAIN,
    USERS,
    WHO,
    ReachedPods,
    a_deployment,
    a_region_of_others,
    side_by_side_of,
)
from fakes.clusters.region import NAME, NAMESPACE, PODS_OF_OTHERS, ClusterRegion, Endpoints, an_image
from fakes.kube.requests import WRITES, Fault, LoseAnswer, LoseRequest

from rollouts.adoption.deployments.refusals import notes
from rollouts.adoption.model import Write
from rollouts.cluster.carrier import Carrier
from rollouts.errors import CannotAdopt, EngineDidNotStart, FleetError
from rollouts.kube.resources import (
    DEPLOYMENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    HTTP_ROUTES,
    LEASES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    ROLLOUTS,
    SCALED_OBJECTS,
    SERVICES,
    resource_of,
)
from rollouts.manifests.conventions import BEFORE_ADOPTION, MADE_FOR
from rollouts.model import RegionPhase
from tidegate.core.model import Json

pytestmark = pytest.mark.long

OTHER_PERSON = Carrier(token="a person", who="a person")
KINDS = (DEPLOYMENTS, ROLLOUTS, SERVICES, HTTP_ROUTES, POD_DISRUPTION_BUDGETS, LEASES)
SURGES = pytest.mark.parametrize("surge", [None, 1])


@pytest.fixture
async def region() -> ClusterRegion:
    return await a_region_of_others(a_deployment())


async def adopted(region: ClusterRegion, surge: int | None = None) -> list[Write]:
    writes: list[Write] = []
    assert await side_by_side_of(region, surge=surge).adopt(WHO, writes.append)
    return writes


async def given_back(region: ClusterRegion, surge: int | None = None) -> list[Write]:
    writes: list[Write] = []
    await side_by_side_of(region, OTHER_PERSON, surge=surge).release(writes.append)
    return writes


def subjects(writes: Sequence[Write]) -> list[str]:
    return list(dict.fromkeys(write.subject.split()[0] for write in writes))


def as_people_see_it(region: ClusterRegion) -> dict[str, tuple[Json, Json, Json]]:
    return {
        f"{kind.kind} {body['metadata']['name']}": (
            deepcopy(body["metadata"].get("labels") or {}),
            {key: value for key, value in (body["metadata"].get("annotations") or {}).items() if "argo" not in key},
            deepcopy(body.get("spec") or {}),
        )
        for kind in KINDS
        for body in region.cluster.list(kind)
    }


def pods_of_deployment(region: ClusterRegion) -> int:
    return len(region.cluster.list(PODS, labels="pod-template-hash"))


def replicas(region: ClusterRegion, kind: Any = DEPLOYMENTS) -> int:
    return int(region.cluster.get(kind, NAME)["spec"]["replicas"])


def other(kind: Any, name: str, spec: Json, **metadata: Any) -> Json:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": NAMESPACE, **metadata},
        "spec": spec,
    }


def autoscaler(kind: Any = HORIZONTAL_POD_AUTOSCALERS, name: str = "scaler", **metadata: Any) -> Json:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME}
    bounds = {"maxReplicas": 8, "minReplicas": 4} if kind is HORIZONTAL_POD_AUTOSCALERS else {"triggers": []}
    return other(kind, name, {"scaleTargetRef": target, **bounds}, **metadata)


class TestAdopting:
    async def test_pods_come_first_and_the_deployment_gives_its_own_up_last(self, region: ClusterRegion) -> None:
        writes = await adopted(region)
        assert subjects(writes) == ["Rollout", "ReplicaSet", "Pod", "Service", "HTTPRoute", "Deployment"]
        assert (writes[-1].subject, replicas(region), replicas(region, ROLLOUTS)) == (f"Deployment {NAME}", 0, 4)

    @SURGES
    async def test_users_never_have_fewer_pods(self, region: ClusterRegion, surge: int | None) -> None:
        reached, endpoints = ReachedPods(region), Endpoints(region.cluster)
        most = 0

        def count(_: object) -> None:
            nonlocal most
            most = max(most, len(region.cluster.list(PODS)))

        region.cluster.on_change(count)
        await adopted(region, surge)
        assert (reached.fewest, endpoints.lost, endpoints.misled) == (PODS_OF_OTHERS, [], [])
        assert most == PODS_OF_OTHERS + (surge or PODS_OF_OTHERS)

    async def test_the_region_is_steady_and_their_own_service_has_the_same_pods(self, region: ClusterRegion) -> None:
        await adopted(region)
        await region.time.sleep(30)
        state = await region.fleet.observe()
        assert (state.phase, state.stable and state.stable.version) == (RegionPhase.STEADY, "1")
        assert (state.problem, state.foreign_objects) == (None, ())
        assert (Endpoints(region.cluster).of(USERS), pods_of_deployment(region)) == (PODS_OF_OTHERS, 0)

    async def test_pods_end_only_after_answers_that_were_on_their_way(self, region: ClusterRegion) -> None:
        moved = [0.0, 0.0]

        def note(event: Any) -> None:
            if event.kind.kind == "HTTPRoute":
                moved[0] = moved[0] or region.time.monotonic()
            if event.kind.kind == "Pod" and event.change == "DELETED":
                moved[1] = moved[1] or region.time.monotonic()

        region.cluster.on_change(note)
        await adopted(region)
        await region.time.sleep(30)
        assert moved[1] - moved[0] >= DRAIN

    async def test_what_it_gets_back_is_noted_and_so_is_what_the_rollout_is_for(self, region: ClusterRegion) -> None:
        await adopted(region)
        note = region.cluster.get(DEPLOYMENTS, NAME)["metadata"]["annotations"][BEFORE_ADOPTION]
        assert json.loads(note) == {"replicas": PODS_OF_OTHERS, "rollout": NAME}
        assert region.rollout["metadata"]["annotations"][MADE_FOR] == NAME

    async def test_said_again_it_writes_nothing(self, region: ClusterRegion) -> None:
        await adopted(region)
        region.api.calls.clear()
        assert not await side_by_side_of(region).adopt(WHO, pytest.fail)
        assert [call for call in region.api.calls if call.verb in WRITES] == []

    async def test_pods_that_an_upgrade_brings_back_are_given_up_again(self, region: ClusterRegion) -> None:
        await adopted(region)
        region.cluster.patch(DEPLOYMENTS, NAME, {"spec": {"replicas": 4}}, manager="helm")
        await region.time.sleep(60)
        assert pods_of_deployment(region) == PODS_OF_OTHERS
        assert await side_by_side_of(region).adopt(WHO, lambda _: None)
        assert replicas(region) == 0

    async def test_a_dry_run_tells_what_a_run_writes(self, region: ClusterRegion) -> None:
        adoption = side_by_side_of(region)
        planned = [write.subject for write in adoption.planned(await adoption.require(WHO), WHO)]
        written = [write.subject for write in await adopted(region)]
        assert planned.pop(1) == f"pods of Rollout {NAME}"
        assert planned == [each for each in written if each.split()[0] not in {"ReplicaSet", "Pod"}]

    async def test_a_deployment_of_another_name_is_named(self) -> None:
        bodies = deepcopy(a_deployment())
        bodies[-1]["metadata"]["name"] = "vllm"
        region = await a_region_of_others(bodies)
        before, reached = as_people_see_it(region), ReachedPods(region)
        with pytest.raises(CannotAdopt, match="neither a Rollout support-llm nor a Deployment of that name"):
            await adopted(region)
        await side_by_side_of(region, deployment="vllm").adopt(WHO, lambda _: None)
        assert region.cluster.get(DEPLOYMENTS, "vllm")["spec"]["replicas"] == 0
        await given_back(region)
        assert (as_people_see_it(region), reached.fewest) == (before, PODS_OF_OTHERS)

    async def test_cut_off_in_the_middle_it_goes_on(self, region: ClusterRegion) -> None:
        reached, endpoints = ReachedPods(region), Endpoints(region.cluster)
        region.api.faults.add(Fault(LoseAnswer(), verbs=WRITES, after=4))
        region.api.faults.add(Fault(LoseRequest(), verbs=WRITES, after=5, times=None))
        try:
            await adopted(region)
        except FleetError:
            region.api.faults.clear()
            await side_by_side_of(region).adopt(WHO, lambda _: None)
        state = await region.fleet.observe()
        assert state.stable and (state.phase, state.stable.version) == (RegionPhase.STEADY, "1")
        assert (reached.fewest, endpoints.lost, endpoints.misled) == (PODS_OF_OTHERS, [], [])
        assert (replicas(region), replicas(region, ROLLOUTS)) == (0, PODS_OF_OTHERS)


async def delivered_to(region: ClusterRegion) -> None:
    await region.fleet.deploy(an_image("2"))
    await region.fleet.promote()
    await region.fleet.deploy(an_image("3"))
    await region.fleet.shift(25)
    await region.fleet.rollback(None)
    await region.fleet.leave()


class TestGivingBack:
    @pytest.mark.parametrize(("surge", "delivered"), [(None, True), (1, False)])
    async def test_everything_is_as_it_was(self, region: ClusterRegion, surge: int | None, delivered: bool) -> None:
        before, reached, endpoints = as_people_see_it(region), ReachedPods(region), Endpoints(region.cluster)
        await adopted(region)
        if delivered:
            await delivered_to(region)
        await given_back(region, surge)
        await region.time.sleep(3600)
        assert as_people_see_it(region) == before
        assert (reached.fewest, endpoints.lost, endpoints.misled) == (PODS_OF_OTHERS, [], [])
        assert pods_of_deployment(region) == len(region.cluster.list(PODS)) == PODS_OF_OTHERS

    async def test_cut_off_in_the_middle_it_goes_on(self, region: ClusterRegion) -> None:
        before, reached, endpoints = as_people_see_it(region), ReachedPods(region), Endpoints(region.cluster)
        await adopted(region)
        await delivered_to(region)
        region.api.faults.add(Fault(LoseAnswer(), verbs=WRITES, after=4))
        region.api.faults.add(Fault(LoseRequest(), verbs=WRITES, after=5, times=None))
        try:
            await given_back(region)
        except FleetError:
            region.api.faults.clear()
            await given_back(region)
        await region.time.sleep(60)
        assert as_people_see_it(region) == before
        assert (reached.fewest, endpoints.lost, endpoints.misled) == (PODS_OF_OTHERS, [], [])

    async def test_while_a_trial_is_under_way_it_is_refused(self, region: ClusterRegion) -> None:
        await adopted(region)
        await region.fleet.deploy(an_image("2"))
        await region.fleet.leave()
        region.api.calls.clear()
        with pytest.raises(CannotAdopt, match="a trial is under way"):
            await given_back(region)
        assert [call for call in region.api.calls if call.verb in WRITES] == []

    async def test_without_the_deployment_it_is_refused(self, region: ClusterRegion) -> None:
        await adopted(region)
        region.cluster.delete(DEPLOYMENTS, NAME)
        with pytest.raises(CannotAdopt, match=f"Deployment {NAME}, for which Rollout {NAME} was made, is gone"):
            await given_back(region)

    async def test_what_nobody_adopted_is_not_given_back(self, region: ClusterRegion) -> None:
        with pytest.raises(CannotAdopt, match="nothing of support-llm was adopted"):
            await given_back(region)


class TestRefusals:
    """Each is told before anything is written."""

    async def refused(self, region: ClusterRegion, words: str, *, surge: int | None = None) -> None:
        region.api.calls.clear()
        with pytest.raises(CannotAdopt, match=words):
            await side_by_side_of(region, surge=surge).adopt(WHO, pytest.fail)
        dry = {"pods"}
        assert [call for call in region.api.calls if call.verb in WRITES and call.plural not in dry] == []

    async def changed(self, region: ClusterRegion, spec: Json) -> None:
        region.cluster.patch(DEPLOYMENTS, NAME, {"spec": spec}, manager="kubectl-edit")
        await region.time.sleep(30)

    async def test_one_without_pods(self, region: ClusterRegion) -> None:
        await self.changed(region, {"replicas": 0})
        await self.refused(region, f"Deployment {NAME} has no pods")

    async def test_pods_that_are_not_ready(self, region: ClusterRegion) -> None:
        region.cluster.delete(PODS, region.cluster.list(PODS)[0]["metadata"]["name"])
        await self.refused(region, f"3 of 4 pods of Deployment {NAME} are ready|is not at rest")

    async def test_another_number_of_pods_than_the_spec_wants(self, region: ClusterRegion) -> None:
        await self.changed(region, {"replicas": 6})
        await self.refused(region, "it has 6 pods, and the spec wants 4: set `fleet.replicas`")

    async def test_users_who_are_split_with_others(self) -> None:
        bodies = deepcopy(a_deployment())
        bodies[1]["spec"]["rules"][0]["backendRefs"].append({"name": "elsewhere", "port": 80, "weight": 10})
        await self.refused(await a_region_of_others(bodies), "splits its users with elsewhere")

    async def test_a_port_that_engines_of_tidegate_do_not_have(self) -> None:
        bodies = deepcopy(a_deployment())
        bodies[-1]["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 9000}]
        await self.refused(await a_region_of_others(bodies), "neither a port named http nor port 8000")

    async def test_a_rollout_that_was_there_before(self) -> None:
        region = await a_region_of_others(a_deployment())
        await adopted(region)
        with pytest.raises(CannotAdopt, match=f"made for Deployment {NAME}, and is not Deployment vllm's"):
            await side_by_side_of(region, deployment="vllm").adopt(WHO, pytest.fail)

    async def test_keda_that_is_not_paused(self, region: ClusterRegion) -> None:
        region.cluster.create(SCALED_OBJECTS, autoscaler(SCALED_OBJECTS), manager="helm")
        await self.refused(region, f"ScaledObject scaler scales Deployment {NAME} up again from 0: pause it")

    async def test_an_autoscaler_while_pods_move_part_by_part(self, region: ClusterRegion) -> None:
        region.cluster.create(HORIZONTAL_POD_AUTOSCALERS, autoscaler(), manager="helm")
        await self.refused(region, "HorizontalPodAutoscaler scaler scales .* while its pods move part by part", surge=1)

    async def test_an_autoscaler_of_the_deliverys_own_name(self) -> None:
        autoscale = {"by": "hpa", "min_replicas": 2, "max_replicas": 8}
        region = await a_region_of_others(a_deployment(), autoscale=autoscale)
        region.cluster.create(HORIZONTAL_POD_AUTOSCALERS, autoscaler(name=NAME), manager="helm")
        await self.refused(region, "has the name of the delivery's own")

    @pytest.mark.parametrize(
        ("room", "words", "hint"),
        [
            (0, "4 more pods are needed, and there is room for 0", "bring nodes for one more at least"),
            (2, "4 more pods are needed, and there is room for 2", "`--surge 2` moves as many at a time"),
        ],
    )
    async def test_no_room_for_both(self, room: int, words: str, hint: str) -> None:
        region = await a_crowded_region(room)
        with pytest.raises(CannotAdopt, match=words) as refusal:
            await side_by_side_of(region).adopt(WHO, pytest.fail)
        assert hint in str(refusal.value.hint)


async def a_crowded_region(room: int) -> ClusterRegion:
    """One node, with place for so many pods besides those that serve."""
    bodies = deepcopy(a_deployment())
    resources = {"limits": {"nvidia.com/gpu": "1"}}
    bodies[-1]["spec"]["template"]["spec"]["containers"][0]["resources"] = resources
    region = await a_region_of_others([])
    allocatable = {"nvidia.com/gpu": str(PODS_OF_OTHERS + room), "pods": "110"}
    region.cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
    region.cluster.patch(NODES, "node-1", {"status": {"allocatable": allocatable}}, subresource="status")
    for body in bodies:
        region.cluster.create(resource_of(body), body, namespace=NAMESPACE, manager="helm")
    await region.time.sleep(60)
    return region


async def test_its_autoscaler_rests_and_a_second_budget_is_told(region: ClusterRegion) -> None:
    region.cluster.create(HORIZONTAL_POD_AUTOSCALERS, autoscaler(), manager="helm")
    paused = {"autoscaling.keda.sh/paused": "true"}
    region.cluster.create(SCALED_OBJECTS, autoscaler(SCALED_OBJECTS, "keda", annotations=paused), manager="helm")
    budget = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": NAME}}}
    region.cluster.create(POD_DISRUPTION_BUDGETS, other(POD_DISRUPTION_BUDGETS, "theirs", budget), manager="helm")
    await adopted(region)
    keda, autoscaling, second = notes(await side_by_side_of(region).look())
    assert autoscaling.startswith(f"HorizontalPodAutoscaler scaler rests while Deployment {NAME} has no pods")
    assert keda.startswith(f"ScaledObject keda stays paused until Deployment {NAME} is given back")
    assert second.startswith("PodDisruptionBudget theirs holds for the Rollout's pods too")


async def test_pods_that_do_not_come_up_take_nothing_from_users(region: ClusterRegion) -> None:
    before, reached = as_people_see_it(region), ReachedPods(region)
    adoption = side_by_side_of(region, start_seconds=60)
    region.simulation.unschedulable("vllm/vllm-openai:v0.11.0")
    with pytest.raises(EngineDidNotStart, match=r"0 of 4 pods of the Rollout are ready, .*: no node for "):
        await adoption.adopt(WHO, lambda _: None)
    region.simulation.unschedulable("vllm/vllm-openai:v0.11.0", on=False)
    await given_back(region)
    await region.time.sleep(60)
    assert (as_people_see_it(region), reached.fewest) == (before, PODS_OF_OTHERS)
