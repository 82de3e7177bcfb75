"""A Rollout of others is adopted while it serves, delivered to, and given back as it was."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import pytest
from fakes.clusters.adoption import USERS, WHO, a_region_of_others, adoption_of, one_service, split_by_weight
from fakes.clusters.region import NAME, PODS_OF_OTHERS, ClusterRegion, Endpoints, an_image
from fakes.kube.refusal import Refusal
from fakes.kube.requests import WRITES, Fault, LoseAnswer, LoseRequest, Refuse

from rollouts.adoption.adoption import require_adoptable
from rollouts.adoption.model import Write
from rollouts.adoption.takeover import takeover
from rollouts.cluster.carrier import Carrier
from rollouts.errors import CannotAdopt, FleetError, WouldTakeDown
from rollouts.kube.resources import (
    HTTP_ROUTES,
    LEASES,
    NETWORK_POLICIES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    ROLLOUTS,
    SERVICES,
)
from rollouts.manifests.conventions import canary_service, stable_service
from rollouts.model import RegionPhase
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY

pytestmark = pytest.mark.long

OTHER_PERSON = Carrier(token="a person", who="a person")
KINDS = (ROLLOUTS, SERVICES, HTTP_ROUTES, REPLICA_SETS, PODS, POD_DISRUPTION_BUDGETS, LEASES)


@pytest.fixture
async def region() -> ClusterRegion:
    return await a_region_of_others(split_by_weight())


def told(writes: list[Write]) -> Callable[[Write], None]:
    return writes.append


async def adopted(region: ClusterRegion) -> list[Write]:
    writes: list[Write] = []
    assert await adoption_of(region).adopt(WHO, told(writes))
    return writes


def as_people_see_it(region: ClusterRegion) -> dict[str, tuple[Json, Json]]:
    """Labels and spec of every object of the delivery's names, without what the controller counts."""
    return {
        f"{kind.kind} {body['metadata']['name']}": (
            deepcopy(body["metadata"].get("labels") or {}),
            deepcopy(body.get("spec") or {}),
        )
        for kind in KINDS
        for body in region.cluster.list(kind)
    }


def pods(region: ClusterRegion) -> set[str]:
    return {pod["metadata"]["name"] for pod in region.cluster.list(PODS)}


class TestAdopting:
    async def test_labels_come_first_then_services_then_the_route_then_the_rollout(self, region: ClusterRegion) -> None:
        kinds = [write.subject.split()[0] for write in await adopted(region)]
        assert list(dict.fromkeys(kinds)) == ["ReplicaSet", "Pod", "Service", "HTTPRoute", "Rollout"]
        assert kinds.count("Pod") == PODS_OF_OTHERS

    async def test_no_pod_is_started_and_none_is_missed(self, region: ClusterRegion) -> None:
        before, endpoints = pods(region), Endpoints(region.cluster)
        await adopted(region)
        await region.time.sleep(600)
        assert pods(region) == before
        assert (endpoints.lost, endpoints.misled) == ([], [])
        assert endpoints.of(stable_service(NAME)) == PODS_OF_OTHERS

    async def test_users_keep_their_address_and_their_paths(self, region: ClusterRegion) -> None:
        before = region.cluster.get(HTTP_ROUTES, NAME)["spec"]
        await adopted(region)
        after = region.cluster.get(HTTP_ROUTES, NAME)["spec"]
        assert (after["hostnames"], after["parentRefs"]) == (before["hostnames"], before["parentRefs"])
        assert after["rules"][0].get("matches") == before["rules"][0].get("matches")

    async def test_a_dry_run_tells_what_a_run_writes(self, region: ClusterRegion) -> None:
        place = await adoption_of(region).look()
        require_adoptable(place, WHO)
        planned = [(write.subject, write.what) for write in takeover(place, WHO)]
        assert planned == [(write.subject, write.what) for write in await adopted(region)]

    async def test_cut_off_in_the_middle_it_goes_on(self, region: ClusterRegion) -> None:
        before, endpoints = pods(region), Endpoints(region.cluster)
        region.api.faults.add(Fault(LoseAnswer(), verbs=WRITES, after=4))
        region.api.faults.add(Fault(LoseRequest(), verbs=WRITES, after=5, times=None))
        with pytest.raises(FleetError):
            await adopted(region)
        region.api.faults.clear()
        await adoption_of(region).adopt(WHO, lambda _: None)
        state = await region.fleet.observe()
        assert state.stable and (state.phase, state.stable.version) == (RegionPhase.STEADY, "1")
        assert (pods(region), endpoints.lost, endpoints.misled) == (before, [], [])


class TestDelivering:
    async def test_their_pods_are_the_stable_until_a_version_is_promoted(self, region: ClusterRegion) -> None:
        await adopted(region)
        before, endpoints = pods(region), Endpoints(region.cluster)
        trial = await region.fleet.deploy(an_image("2"))
        assert trial.stable and trial.canary and (trial.stable.version, trial.canary.version) == ("1", "2")
        assert before <= pods(region)
        await region.fleet.shift(50)
        done = await region.fleet.promote()
        assert done.stable and done.previous and (done.stable.version, done.previous.version) == ("2", "1")
        assert (endpoints.lost, endpoints.misled) == ([], [])


class TestGivingBack:
    async def test_at_once_everything_is_as_it_was(self, region: ClusterRegion) -> None:
        before, endpoints = as_people_see_it(region), Endpoints(region.cluster)
        await adopted(region)
        await adoption_of(region).release(lambda _: None)
        await region.time.sleep(60)
        assert as_people_see_it(region) == before
        assert (endpoints.lost, endpoints.misled) == ([], [])

    async def test_after_deliveries_their_own_pods_serve_again(self, region: ClusterRegion) -> None:
        before = as_people_see_it(region)
        await adopted(region)
        endpoints = Endpoints(region.cluster)
        await region.fleet.deploy(an_image("2"))
        await region.fleet.promote()
        await region.fleet.deploy(an_image("3"))
        await region.fleet.shift(25)
        await region.fleet.rollback(None)
        await region.fleet.leave()
        await region.time.sleep(4 * 3600)
        await adoption_of(region, OTHER_PERSON).release(lambda _: None)
        await region.time.sleep(6 * 3600)
        after = as_people_see_it(region)
        objects = ("Rollout", "Service", "HTTPRoute", "PodDisruptionBudget", "Lease")
        assert {k: v for k, v in after.items() if k.startswith(objects)} == {
            k: v for k, v in before.items() if k.startswith(objects)
        }
        serving = [labels for name, (labels, _) in after.items() if name.startswith("Pod ")]
        assert len(serving) == PODS_OF_OTHERS and all(DELIVERY not in labels for labels in serving)
        assert (endpoints.lost, endpoints.misled) == ([], [])

    async def test_engines_that_an_autoscaler_added_meanwhile_stay(self, region: ClusterRegion) -> None:
        await adopted(region)
        region.cluster.patch(ROLLOUTS, NAME, {"spec": {"replicas": 6}}, manager="keda-operator")
        await region.time.sleep(60)
        await adoption_of(region).release(lambda _: None)
        assert region.rollout["spec"]["replicas"] == 6

    async def test_while_a_trial_is_under_way_it_is_refused(self, region: ClusterRegion) -> None:
        await adopted(region)
        await region.fleet.deploy(an_image("2"))
        await region.fleet.leave()
        with pytest.raises(CannotAdopt, match="a trial is under way"):
            await adoption_of(region, OTHER_PERSON).release(pytest.fail)

    async def test_cut_off_in_the_middle_it_goes_on(self, region: ClusterRegion) -> None:
        before = as_people_see_it(region)
        await adopted(region)
        endpoints = Endpoints(region.cluster)
        region.api.faults.add(Fault(LoseAnswer(), verbs=WRITES, after=4))
        region.api.faults.add(Fault(LoseRequest(), verbs=WRITES, after=5, times=None))
        with pytest.raises(FleetError):
            await adoption_of(region).release(lambda _: None)
        region.api.faults.clear()
        await adoption_of(region).release(lambda _: None)
        await region.time.sleep(60)
        assert as_people_see_it(region) == before
        assert (endpoints.lost, endpoints.misled) == ([], [])


class TestRefusals:
    """Each is told before anything is written."""

    async def refused(self, region: ClusterRegion, words: str) -> None:
        region.api.calls.clear()
        with pytest.raises(CannotAdopt, match=words):
            await adoption_of(region).adopt(WHO, pytest.fail)
        assert [call for call in region.api.calls if call.verb in WRITES] == []

    async def changed(self, region: ClusterRegion, spec: Json) -> None:
        region.cluster.patch(ROLLOUTS, NAME, {"spec": spec}, manager="kubectl-edit")
        await region.time.sleep(30)

    async def test_no_rollout_of_that_name(self) -> None:
        region = await a_region_of_others(split_by_weight()[:3])
        await self.refused(region, f"there is no Rollout {NAME}: the delivery needs the Rollout's name")

    async def test_no_route(self) -> None:
        bodies = [body for body in split_by_weight() if body["kind"] != "HTTPRoute"]
        await self.refused(await a_region_of_others(bodies), f"there is no HTTPRoute {NAME} that leads its users")

    async def test_an_update_that_is_under_way(self) -> None:
        region = await a_region_of_others(split_by_weight())
        await self.changed(region, {"template": {"metadata": {"labels": {"tried": "yes"}}}})
        await self.refused(region, "is not at rest")

    async def test_pods_that_are_not_ready(self) -> None:
        region = await a_region_of_others(split_by_weight())
        await self.changed(region, {"replicas": 6})
        region.cluster.delete(PODS, next(iter(pods(region))))
        await self.refused(region, "of 6 pods of Rollout support-llm are ready")

    async def test_another_number_of_pods_than_the_spec_wants(self) -> None:
        region = await a_region_of_others(split_by_weight())
        await self.changed(region, {"replicas": 6})
        await region.time.sleep(60)
        await self.refused(region, "it has 6 pods, and the spec wants 4: set `fleet.replicas`")

    async def test_a_port_that_engines_of_tidegate_do_not_have(self) -> None:
        bodies = deepcopy(one_service())
        bodies[-1]["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 9000}]
        await self.refused(await a_region_of_others(bodies), "neither a port named http nor port 8000")

    async def test_a_network_policy_that_would_shut_their_pods_off(self) -> None:
        region = await a_region_of_others(one_service())
        metadata = {"name": NAME, "labels": {DELIVERY: NAME}}
        spec = {"podSelector": {"matchLabels": {DELIVERY: NAME}}}
        policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": spec}
        region.cluster.create(NETWORK_POLICIES, policy)
        await self.refused(region, "lets requests in at a port named http, which its pods do not have")

    async def test_users_who_are_split_with_others(self) -> None:
        bodies = deepcopy(one_service())
        bodies[1]["spec"]["rules"][0]["backendRefs"].append({"name": "elsewhere", "port": 80, "weight": 10})
        await self.refused(await a_region_of_others(bodies), "splits its users with elsewhere")

    async def test_two_rules_that_lead_to_them(self) -> None:
        bodies = deepcopy(one_service())
        bodies[1]["spec"]["rules"] *= 2
        await self.refused(await a_region_of_others(bodies), "2 rules of HTTPRoute support-llm lead to its pods")

    async def test_one_that_tidegate_made(self) -> None:
        region = ClusterRegion()
        await region.fleet.deploy(an_image("1"))
        await self.refused(region, "was made by tidegate: there is nothing to adopt")

    async def test_another_version_than_it_was_adopted_as(self) -> None:
        region = await a_region_of_others(split_by_weight())
        await adopted(region)
        with pytest.raises(CannotAdopt, match="is adopted already, as version 1"):
            await adoption_of(region).adopt(WHO.model_copy(update={"version": "2"}), pytest.fail)

    async def test_a_service_that_selects_more_than_its_pods_is_left_alone(self) -> None:
        bodies = deepcopy(split_by_weight())
        region = await a_region_of_others(bodies[:-1])
        other = deepcopy(bodies[-1])
        other["metadata"]["name"] = "another"
        other["spec"]["strategy"] = {"canary": {"steps": []}}
        other["spec"]["template"]["metadata"]["labels"]["more"] = "yes"
        for body in (bodies[-1], other):
            body["spec"]["strategy"] = {"canary": {"steps": []}}
            region.cluster.create(ROLLOUTS, body, manager="helm")
        await region.time.sleep(60)
        endpoints = Endpoints(region.cluster)
        had = endpoints.of(stable_service(NAME))
        with pytest.raises(WouldTakeDown, match=f"selects {had} pods that are ready, and would select"):
            await adoption_of(region).adopt(WHO, lambda _: None)
        assert (endpoints.of(stable_service(NAME)), endpoints.lost) == (had, [])


async def test_their_own_service_keeps_their_pods_and_the_new_ones_answer_at_its_route() -> None:
    region = await a_region_of_others(one_service())
    await adopted(region)
    refs = region.cluster.get(HTTP_ROUTES, NAME)["spec"]["rules"][0]["backendRefs"]
    assert [(ref["name"], ref["weight"]) for ref in refs] == [(stable_service(NAME), 100), (canary_service(NAME), 0)]
    assert Endpoints(region.cluster).of(USERS) == PODS_OF_OTHERS


async def test_pods_that_a_policy_of_the_cluster_would_not_take_are_told_before_anything_is_written() -> None:
    region = await a_region_of_others(split_by_weight())
    refusal = Refusal(403, "Forbidden", "whatever is taken for an engine runs as its service account")
    region.api.faults.add(Fault(Refuse(refusal), verbs=("patch",), plural="pods", times=None))
    with pytest.raises(CannotAdopt, match=r"with the delivery's labels would be refused: .*whatever is taken"):
        await adoption_of(region).adopt(WHO, pytest.fail)


async def test_a_route_of_another_name_goes_on_serving_and_splits_users() -> None:
    bodies = deepcopy(one_service())
    bodies[1]["metadata"]["name"] = "chat-public"
    region = await a_region_of_others(bodies, gateway={"name": "public", "route": "chat-public"})
    before, endpoints = deepcopy(region.route["spec"]), Endpoints(region.cluster)
    await adopted(region)
    await region.fleet.deploy(an_image("2"))
    await region.fleet.mirror(100)
    state = await region.fleet.shift(25)
    assert (state.weight, region.splits[-1]) == (25, (25, 100))
    (mirror,) = region.route["spec"]["rules"][0]["filters"]
    backend = mirror["requestMirror"]["backendRef"]
    assert (backend["name"], backend["port"]) == (canary_service(NAME), 80)
    assert region.cluster.list(HTTP_ROUTES) == [region.route]
    await region.fleet.rollback(None)
    await region.fleet.leave()
    await adoption_of(region, OTHER_PERSON).release(lambda _: None)
    assert (region.route["spec"], endpoints.lost, endpoints.misled) == (before, [], [])
