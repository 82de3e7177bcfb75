"""What tidegate's token could run besides engines is told, and that nobody is told where it may not be seen."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.clusters.doctor_region import NAME, NAMESPACE, Region

from rollouts.kube.resources import ADMISSION_BINDINGS, ADMISSION_POLICIES, CONFIG_MAPS

ROLLOUTS = f"{NAMESPACE}.{NAME}-rollouts"


async def test_a_cluster_without_the_policies_is_told(region: Region) -> None:
    region.cluster.delete(ADMISSION_POLICIES, ROLLOUTS)
    (finding,) = await region.examined()
    assert finding.code == "admission-absent"
    assert finding.evidence == (f"ValidatingAdmissionPolicy {ROLLOUTS}",)


async def test_so_is_a_policy_that_nothing_binds(region: Region) -> None:
    region.cluster.delete(ADMISSION_BINDINGS, ROLLOUTS)
    (finding,) = await region.examined()
    assert finding.code == "admission-absent"
    assert finding.evidence == (f"ValidatingAdmissionPolicyBinding {ROLLOUTS}",)


LOOSE: dict[str, tuple[Any, dict[str, Any], str]] = {
    "only warns": (ADMISSION_BINDINGS, {"validationActions": ["Warn"]}, "does not deny"),
    "elsewhere": (
        ADMISSION_BINDINGS,
        {"matchResources": {"namespaceSelector": {"matchLabels": {"team": "a"}}}},
        "is narrowed by matchResources",
    ),
    "another policy": (ADMISSION_BINDINGS, {"policyName": "theirs"}, "binds theirs"),
    "ignores what it cannot judge": (ADMISSION_POLICIES, {"failurePolicy": "Ignore"}, "has another failurePolicy"),
    "of another trust file": (
        ADMISSION_POLICIES,
        {"validations": [{"expression": "true", "message": "all is well"}]},
        "has another validations",
    ),
    "of nobody": (
        ADMISSION_POLICIES,
        {"matchConditions": [{"name": "never", "expression": "false"}]},
        "has another matchConditions",
    ),
}


@pytest.mark.parametrize(("resource", "change", "why"), LOOSE.values(), ids=LOOSE)
async def test_a_policy_that_refuses_less_is_told(region: Region, resource: Any, change: Any, why: str) -> None:
    region.edit(resource, ROLLOUTS, lambda it: it["spec"].update(change))
    (finding,) = await region.examined()
    assert finding.code == "admission-loose"
    assert finding.evidence == (f"{resource.kind} {ROLLOUTS}: {why}",)


async def test_what_a_server_adds_is_no_difference(region: Region) -> None:
    def default(it: dict[str, Any]) -> None:
        constraints = it["spec"]["matchConstraints"]
        constraints.update(matchPolicy="Equivalent")
        constraints.setdefault("objectSelector", {})
        constraints["resourceRules"][0]["scope"] = "*"

    region.edit(ADMISSION_POLICIES, ROLLOUTS, default)
    assert await region.examined() == ()


def configured(region: Region, **data: str) -> None:
    region.cluster.create_namespace("argo")
    metadata = {"name": "workflow-controller-configmap", "namespace": "argo"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    region.cluster.create(CONFIG_MAPS, body, namespace="argo")


@pytest.mark.parametrize(
    "data",
    [{}, {"workflowRestrictions": "templateReferencing: Anything"}, {"config": "workflowRestrictions: {}"}],
    ids=["nothing", "something", "nothing in one text"],
)
async def test_workflows_that_may_say_anything_are_told(region: Region, data: dict[str, str]) -> None:
    configured(region, **data)
    (finding,) = await region.examined(workflows_in=("argo",))
    assert finding.code == "workflows-unrestricted"


@pytest.mark.parametrize(
    "data",
    [
        {"workflowRestrictions": "templateReferencing: Secure"},
        {"workflowRestrictions": "{templateReferencing: Strict}"},
        {"config": "workflowRestrictions: {templateReferencing: Secure}"},
    ],
)
async def test_workflows_of_templates_alone_are_well(region: Region, data: dict[str, str]) -> None:
    configured(region, **data)
    assert await region.examined(workflows_in=("argo",)) == ()


async def test_where_no_workflow_carries_deliveries_nobody_asks(region: Region) -> None:
    configured(region)
    assert await region.examined() == ()


async def test_a_cluster_without_argo_workflows_is_well(region: Region) -> None:
    assert await region.examined(workflows_in=("argo", NAMESPACE)) == ()
