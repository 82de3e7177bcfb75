"""Set-ups in which engines do not start, do not fit, are doubled, or cannot be measured."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.clusters.doctor_region import GPU, NAME, Region, fleet, node
from fakes.kube.refusal import Refusal
from fakes.kube.store import Kind

from rollouts.kube.resources import (
    DEPLOYMENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    RESOURCE_QUOTAS,
    ROLLOUTS,
)
from tidegate.core.model import Json

# Starting


async def test_an_image_that_cannot_be_pulled(region: Region) -> None:
    region.simulation.image_pull_fails("8")
    region.deploy("8")
    region.wait(120)
    (found,) = await region.examined()
    assert (found.code, "ImagePullBackOff" in found.evidence[0]) == ("image-not-pulled", True)


async def test_pods_that_the_api_server_refuses(region: Region) -> None:
    def refuse(verb: str, kind: Kind, body: Json) -> None:
        if (verb, kind.plural) == ("create", "pods"):
            raise Refusal(403, "Forbidden", 'pods "x" is forbidden: no PriorityClass with name llm-engines was found')

    region.cluster.admission.append(refuse)
    region.deploy("8")
    region.wait(60)
    (found,) = await region.examined()
    assert (found.code, "no PriorityClass" in found.evidence[0]) == ("pods-refused", True)


async def test_an_engine_that_crashes(region: Region) -> None:
    region.simulation.crash("8")
    region.deploy("8")
    region.wait(120)
    assert await region.found() == {"pod-crashes"}


async def test_an_engine_that_never_gets_ready(region: Region) -> None:
    region.simulation.slow("8", 86400)
    region.deploy("8")
    region.wait(2 * 3600)
    assert await region.found() == {"progress-deadline-exceeded"}


async def test_no_startup_probe(region: Region) -> None:
    region.container(startupProbe=None)
    region.wait(60)
    (found,) = await region.examined()
    assert (found.code, "30 s after its start" in found.evidence[0]) == ("startup-probe-missing", True)


async def test_a_container_next_to_the_engine_may_have_other_probes(region: Region) -> None:
    def add(it: Json) -> None:
        proxy = {"name": "proxy", "image": "proxy:1", "livenessProbe": {"tcpSocket": {"port": 15000}}}
        it["spec"]["template"]["spec"]["containers"].append(proxy)

    region.rollout(add)
    region.wait(60)
    assert await region.found() == set()


async def test_no_readiness_probe(region: Region) -> None:
    region.container(readinessProbe=None)
    region.wait(60)
    assert await region.found() == {"readiness-probe-missing"}


async def test_a_deadline_before_an_engine_may_have_started(region: Region) -> None:
    region.rollout(lambda it: it["spec"].update(progressDeadlineSeconds=600))
    region.wait(60)
    assert await region.found() == {"progress-deadline-too-short"}


# Being measured


async def test_pods_that_no_monitor_can_tell_apart(region: Region) -> None:
    region.rollout(lambda it: it["spec"]["template"]["metadata"]["labels"].pop("tidegate.dev/version"))
    region.wait(60)
    assert await region.found() == {"pods-not-labelled"}


async def test_a_port_that_no_monitor_scrapes(region: Region) -> None:
    region.container(ports=[{"name": "web", "containerPort": 8000}])
    region.wait(60)
    assert await region.found() == {"metrics-port-missing"}


# Nodes and quota


async def test_a_quota_without_room_for_a_second_version(region: Region) -> None:
    hard = {"spec": {"hard": {f"requests.{GPU}": "3"}}}
    region.cluster.patch(RESOURCE_QUOTAS, "gpus", hard)
    (found,) = await region.examined()
    assert found.code == "quota-too-small"
    assert found.evidence == (f"requests.{GPU}: 3 allowed, 2 used, 2 more needed",)


async def test_gpus_that_are_all_taken() -> None:
    region = Region(fleet(replicas=16))
    region.cluster.patch(RESOURCE_QUOTAS, "gpus", {"spec": {"hard": {f"requests.{GPU}": "64"}}})
    region.deploy("8")
    region.wait(900)
    (found,) = await region.examined()
    assert (found.code, f"Insufficient {GPU}" in found.evidence[0]) == ("pods-unschedulable", True)


async def test_a_taint_that_the_new_version_does_not_tolerate(region: Region) -> None:
    region.rollout(lambda it: it["spec"]["template"]["spec"].pop("tolerations"))
    region.wait(900)
    (found,) = await region.examined()
    assert (found.code, found.evidence) == ("taint-not-tolerated", (f"taint {GPU}:NoSchedule (4 nodes)",))


async def test_a_gpu_that_no_node_has(region: Region) -> None:
    selector = {"nvidia.com/gpu.product": "NVIDIA-B200"}
    region.rollout(lambda it: it["spec"]["template"]["spec"].update(nodeSelector=selector))
    region.wait(900)
    assert await region.found() == {"no-such-nodes"}


async def test_a_pod_that_is_larger_than_any_node(region: Region) -> None:
    asked = {"requests": {"cpu": "8", "memory": "64Gi", GPU: "8"}, "limits": {GPU: "8"}}
    region.cluster.patch(RESOURCE_QUOTAS, "gpus", {"spec": {"hard": {f"requests.{GPU}": "64"}}})
    region.container(resources=asked)
    region.wait(900)
    (found,) = await region.examined()
    assert (found.code, found.evidence) == ("nodes-too-small", (f"a pod asks for 8 {GPU}, a node has 4 (4 nodes)",))


async def test_a_budget_that_allows_nothing(region: Region) -> None:
    region.cluster.patch(POD_DISRUPTION_BUDGETS, NAME, {"spec": {"maxUnavailable": None, "minAvailable": 2}})
    assert await region.found() == {"budget-blocks"}


async def test_two_budgets_for_one_pod(region: Region) -> None:
    budget = region.cluster.get(POD_DISRUPTION_BUDGETS, NAME)
    region.bring({**budget, "metadata": {"name": "second", "namespace": "llm"}})
    assert await region.found() == {"budgets-clash"}


# Next to the Rollout


def borrowing(region: Region, **reference: Any) -> None:
    """The Rollout takes its template from a Deployment, as one that was migrated."""
    template = region.cluster.get(ROLLOUTS, NAME)["spec"]["template"]
    template = {**template, "metadata": {"labels": template["metadata"]["labels"] | {"app": "legacy"}}}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "legacy"}}, "template": template}
    metadata = {"name": "legacy", "namespace": "llm"}
    region.bring({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})

    def borrow(it: Json) -> None:
        del it["spec"]["template"]
        it["spec"]["workloadRef"] = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "legacy", **reference}

    region.rollout(borrow)
    region.wait(300)


async def test_a_deployment_that_keeps_its_pods(region: Region) -> None:
    borrowing(region)
    assert {"workload-not-scaled-down"} <= await region.found() <= {"workload-not-scaled-down", "selector-too-wide"}


async def test_a_deployment_that_is_not_there(region: Region) -> None:
    borrowing(region)
    region.cluster.delete(DEPLOYMENTS, "legacy")
    assert "workload-missing" in await region.found()


async def test_an_autoscaler_of_the_deployment_behind_it(region: Region) -> None:
    borrowing(region, scaleDown="onsuccess")
    region.bring(autoscaler("legacy", "Deployment", {"type": "AverageValue", "averageValue": "4"}))
    region.cluster.patch(DEPLOYMENTS, "legacy", {"spec": {"replicas": 0}})
    region.wait(60)
    assert await region.found() == {"autoscaler-on-workload"}


def autoscaler(target: str, kind: str, measured: Json, name: str = "load") -> Json:
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": measured}}
    spec = {"scaleTargetRef": {"kind": kind, "name": target}, "maxReplicas": 4, "metrics": [metric]}
    metadata = {"name": name, "namespace": "llm"}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec}


async def test_an_autoscaler_that_counts_both_versions(region: Region) -> None:
    region.bring(autoscaler(NAME, "Rollout", {"type": "Utilization", "averageUtilization": 60}))
    assert await region.found() == {"autoscaler-counts-both"}


async def test_two_autoscalers() -> None:
    region = Region(fleet(autoscale={"min_replicas": 2, "max_replicas": 4}))
    region.bring(autoscaler(NAME, "Rollout", {"type": "AverageValue", "averageValue": "4"}))
    assert await region.found() == {"two-autoscalers"}


async def test_the_autoscaler_that_keda_makes_is_no_second_one() -> None:
    region = Region(fleet(autoscale={"min_replicas": 2, "max_replicas": 4}))
    made = autoscaler(NAME, "Rollout", {"type": "AverageValue", "averageValue": "4"}, name=f"keda-hpa-{NAME}")
    region.bring(made)
    assert await region.found() == set()


async def test_an_autoscaler_without_a_metric() -> None:
    region = Region(fleet(autoscale={"by": "hpa", "min_replicas": 2, "max_replicas": 4}))
    blind = {"type": "ScalingActive", "status": "False", "reason": "FailedGetExternalMetric", "message": "no adapter"}
    status = {"status": {"conditions": [blind]}}
    region.cluster.patch(HORIZONTAL_POD_AUTOSCALERS, NAME, status, subresource="status")
    assert await region.found() == {"autoscaler-blind"}


async def test_a_node_that_is_being_bought_is_no_finding() -> None:
    region = Region(fleet(replicas=16))
    region.cluster.patch(RESOURCE_QUOTAS, "gpus", {"spec": {"hard": {f"requests.{GPU}": "64"}}})
    region.deploy("8")
    region.wait(300)
    assert await region.found() == set()


@pytest.mark.parametrize("lost", ["gpu-1", "gpu-2"])
async def test_a_node_that_comes_and_goes_is_no_finding(region: Region, lost: str) -> None:
    region.cluster.delete(NODES, lost)
    region.bring(node("gpu-9", gpus=4))
    region.wait(60)
    assert await region.found() == set()


async def test_a_pod_that_was_out_of_memory_says_so(region: Region) -> None:
    region.simulation.crash("8")
    region.deploy("8")
    region.wait(120)
    pod = next(one for one in region.cluster.list(PODS) if one["metadata"]["labels"].get("tidegate.dev/version") == "8")
    ended = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
    state = {"name": "engine", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    region.states(pod, state | {"lastState": ended})
    (found,) = (one for one in await region.examined() if "OOMKilled" in " ".join(one.evidence))
    assert found.code == "pod-crashes"
