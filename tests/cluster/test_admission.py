"""The rendered policies in a real API server: tidegate delivers under them, and nothing else gets past them."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import Any

import pytest
import yaml
from cluster.bed import Bed
from cluster.delivered_model import DeliveredModel
from cluster.others import kubeconfig_of
from cluster.stories import UNGATED
from e2e.machine import Command
from fakes.clusters.admission import OBJECTS_OUTSIDE, PODS_OUTSIDE, ROLLOUTS_OUTSIDE, Change
from fakes.waiting import until

from pipelines.plan.region_objects import rendering
from pipelines.spec.delivery import Delivery
from pipelines.spec.workflow import WorkflowSpec
from pipelines.workflow.model import workflow
from pipelines.workflow.render import blueprint_of, rendered
from registry.conventions import ENGINE_IMAGE
from rollouts.errors import Forbidden, Invalid
from rollouts.kube.client import KubeClient, connect
from rollouts.kube.resources import ADMISSION_POLICIES, PODS, ROLES, ROLLOUTS, Request, resource_of
from rollouts.manifests.conventions import driver
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.model import Engine
from tidegate.core.clock import SystemClock
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY
from tidegate.core.spec import load_spec


class HeldModel(DeliveredModel):
    """A model whose deliveries act as the driver's service account, as the policies and rights of its set-up allow."""

    def __init__(self, bed: Bed) -> None:
        (region, *_) = bed.around.clusters
        super().__init__(bed, "held", [[region]])
        promise = {"name": "availability", "objective": 99, "errors": {}, "window": "30d"}
        self.change(stages=list(UNGATED), slos=[promise])
        self.home = region
        self.first = self.version(alias="champion")
        image = self.registry.tags(self.registry.resolve(self.name, self.first))[ENGINE_IMAGE]
        self.repositories = (image.partition("@")[0],)
        trust = {"kind": "Trust", "engines": {"images": list(self.repositories)}}
        self.trust = self.folder / "operator.yaml"
        self.trust.write_text(yaml.safe_dump(trust), encoding="utf-8")
        self.serve(self.first)
        self.kubeconfig = kubeconfig_of(bed, self.home, driver(self.name), self.folder / "driver.yaml")
        other = ROLLOUTS_OUTSIDE["another name"][0]
        until("the policies are heeded", lambda: "denied request" in self.refused(self.live(), other))

    def fleet(self) -> dict[str, Any]:
        return {**super().fleet(), "admission": True}

    def live(self) -> Json:
        """The Rollout as it would be written."""
        found = self.bed.ask(self.home, lambda client: client.get(ROLLOUTS, self.name))
        return _bare(found)

    def serving(self) -> list[Json]:
        """All that a delivery writes here."""
        spec = load_spec(self.spec, Delivery)
        assert isinstance(spec.fleet, ArgoFleetSpec)
        image = self.live()["spec"]["template"]["spec"]["containers"][0]["image"]
        engine = Engine(version=self.first, digest="d" * 64, model=self.name, image=image)
        return list(rendering(spec, spec.fleet, self.home)(engine))

    def refused(self, body: Json, change: Change, *, as_driver: bool = True) -> str:
        """What the API server says to the changed object; nothing where it takes it."""
        wanted = copy.deepcopy(body)
        change(wanted)
        request = Request(method="POST", resource=resource_of(wanted), body=wanted, query={"dryRun": "All"})

        async def ask() -> str:
            client = self.client() if as_driver else self.bed.client(self.home)
            try:
                await client.send(request)
            except (Forbidden, Invalid) as error:
                return error.message
            finally:
                await client.close()
            return ""

        return asyncio.run(ask())

    def start(self, *arguments: str) -> Command:
        """As the driver."""
        own = {"KUBECONFIG": self.kubeconfig, "TIDEGATE_STATE": str(self.folder / "state")}
        own["TIDEGATE_TRUST"] = str(self.trust)
        return Command.typed(arguments, self.folder, {**self.bed.environment, **own})

    def runs_workflows(self) -> None:
        """The policies of workflows are heeded, and the driver may create Workflows, as `tidegate serve` may."""
        subject = {"kind": "ServiceAccount", "name": driver(self.name), "namespace": self.bed.namespace}
        rule = {"apiGroups": ["argoproj.io"], "resources": ["workflows"], "verbs": ["create"]}
        metadata = {"name": "starts-workflows", "namespace": self.bed.namespace}
        role = {"apiVersion": ROLES.api_version, "kind": "Role", "metadata": metadata, "rules": [rule]}
        reference = {"apiGroup": ROLES.group, "kind": "Role", "name": "starts-workflows"}
        bound = {**role, "kind": "RoleBinding", "roleRef": reference, "subjects": [subject]}
        del bound["rules"]
        settings = WorkflowSpec(image=f"registry.example.com/t@sha256:{'5' * 64}", tracking_uri="http://mlflow.m:5000")
        spec = load_spec(self.spec, Delivery).model_copy(update={"workflow": settings})
        policies = [each for each in rendered(blueprint_of(spec, self.spec)) if each["kind"].startswith("Validating")]
        for body in (role, bound, *policies):
            self.bed.ask(self.home, lambda client, body=body: client.apply(body, force=True))
            if not resource_of(body).namespaced:
                self.bed.leaves_behind(self.home, resource_of(body), body["metadata"]["name"])
        wanted = {**workflow(self.name, self.bed.namespace, version="1"), **{"metadata": {"name": "w"}}}
        until("they are heeded", lambda: "denied" in self.refused(wanted, lambda it: it["spec"].update(entrypoint="x")))

    def client(self) -> KubeClient:
        """The driver's."""
        context = self.bed.around.clusters[self.home].context
        return connect(context, clock=SystemClock(), namespace=self.bed.namespace, kubeconfig=self.kubeconfig)


def _bare(found: Json) -> Json:
    """Without what a server adds."""
    kept = {key: found["metadata"][key] for key in ("name", "namespace", "labels")}
    return {**{key: value for key, value in found.items() if key not in {"status", "metadata"}}, "metadata": kept}


@pytest.fixture(scope="module")
def held(regions: Bed) -> HeldModel:
    return HeldModel(regions)


@pytest.fixture(scope="module")
def engine_pod(held: HeldModel) -> Json:
    """One that serves, as its ReplicaSet made it."""
    found = held.bed.ask(held.home, lambda client: client.list(PODS, labels=f"{DELIVERY}={held.name}"))
    pod = _bare(found[0])
    pod["spec"] = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    pod["metadata"]["name"] = f"{held.name}-another"
    return pod


def test_a_delivery_works_under_them_with_the_drivers_rights_alone(held: HeldModel) -> None:
    with held.users():
        second = held.version()
        done = held.deliver("--output", "json").finish()
        assert done.code == 0, done.err
        held.exactly(second, previous=held.first)
        back = held.start("rollback", "delivery.yaml", "--to", "previous", "--yes").finish()
        assert back.code == 0, back.err
        held.exactly(held.first)
    assert not [one for one in held.asked() if one.failed]


@pytest.mark.parametrize(("change", "reason"), ROLLOUTS_OUTSIDE.values(), ids=ROLLOUTS_OUTSIDE)
def test_no_other_rollout_gets_past_them(held: HeldModel, change: Change, reason: str) -> None:
    said = held.refused(held.live(), change)
    assert "denied request" in said
    assert reason in said


def test_a_rollout_that_is_there_takes_no_other_pods(held: HeldModel) -> None:
    wanted = held.live()
    wanted["spec"]["template"]["spec"]["hostNetwork"] = True

    async def apply() -> str:
        client = held.client()
        try:
            await client.apply(wanted, force=True)
        except (Forbidden, Invalid) as error:
            return error.message
        finally:
            await client.close()
        return ""

    said = asyncio.run(apply())
    assert "denied request: nothing of the node's is shared" in said


@pytest.mark.parametrize(("kind", "change", "reason"), OBJECTS_OUTSIDE.values(), ids=OBJECTS_OUTSIDE)
def test_no_object_of_others_gets_past_them(held: HeldModel, kind: str, change: Change, reason: str) -> None:
    written = [each for each in held.serving() if each["kind"] == kind]
    if not written:
        pytest.skip(f"this delivery has no {kind}")
    said = held.refused(written[0], change)
    assert "denied request" in said
    assert reason in said


@pytest.mark.parametrize("change", PODS_OUTSIDE.values(), ids=PODS_OUTSIDE)
def test_no_pod_passes_for_an_engine(held: HeldModel, engine_pod: Json, change: Change) -> None:
    assert held.refused(engine_pod, lambda it: None, as_driver=False) == ""
    assert "denied request" in held.refused(engine_pod, change, as_driver=False)


def test_the_doctor_sees_them_with_the_drivers_rights(held: HeldModel) -> None:
    told = held.start("doctor", "delivery.yaml", "--output", "json").finish()
    codes = {finding["code"] for region in json.loads(told.out) for finding in region["findings"]}
    assert codes & {"admission-differs", "access-denied"} == set()


def test_the_server_finds_no_fault_with_the_expressions(held: HeldModel) -> None:
    policies = held.bed.ask(held.home, lambda client: client.list(ADMISSION_POLICIES, labels=f"{DELIVERY}={held.name}"))
    assert len(policies) == 2
    checked = [each.get("status", {}).get("typeChecking") for each in policies]
    assert [each for found in checked if found for each in found.get("expressionWarnings") or ()] == []


@pytest.mark.parametrize(
    "more",
    [
        {"templates": [{"name": "deliver", "container": {"image": "evil", "command": ["sh"]}}]},
        {"serviceAccountName": "held-driver"},
        {"podSpecPatch": "{}"},
        {"volumes": [{"name": "s", "secret": {"secretName": "notify"}}]},
        {"entrypoint": "x"},
        {"hostNetwork": True},
        {"workflowTemplateRef": {"name": "theirs", "clusterScope": True}},
    ],
    ids=lambda more: next(iter(more)),
)
def test_no_account_of_the_namespace_changes_a_workflow(held: HeldModel, more: Json) -> None:
    if held.bed.around.workflows is None:
        pytest.skip("no place for workflows is known")
    held.runs_workflows()
    wanted = {**workflow(held.name, held.bed.namespace, version="1"), **{"metadata": {"name": "w"}}}
    assert held.refused(wanted, lambda it: None) == ""
    said = held.refused(wanted, lambda it: it["spec"].update(more))
    assert "denied request: a service account of this namespace runs a WorkflowTemplate with arguments" in said
