"""What an API server takes where workflows run: runs of templates as they are, and pods of the toolchain's image."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
from fakes.clusters.admission import Refusing
from fakes.workflow.cases import blueprint, objects, template

from pipelines.spec.workflow import account_of
from pipelines.workflow.runs import workflow
from rollouts.manifests.schema import problems_in
from tidegate.core.model import Json

CASE = "same-cluster"
NAMESPACE = "deliveries"
SERVE = f"system:serviceaccount:{NAMESPACE}:tidegate-serve"
EXECUTOR = "quay.io/argoproj/argoexec:v4.0.7"


def submitted() -> Json:
    return {**workflow("support-llm", NAMESPACE, version="7"), "metadata": {"name": "w", "namespace": NAMESPACE}}


def step(case: str = CASE) -> Json:
    """A pod as Argo Workflows makes it of the template's first step."""
    spec = template(case)["spec"]
    (first, *_) = (each["container"] for each in spec["templates"] if "container" in each)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "w-open", "namespace": blueprint(case).namespace, "labels": spec["podMetadata"]["labels"]},
        "spec": {
            "serviceAccountName": spec["serviceAccountName"],
            "initContainers": [{"name": "init", "image": EXECUTOR}],
            "containers": [{"name": "wait", "image": EXECUTOR}, {**copy.deepcopy(first), "name": "main"}],
            "volumes": [*spec["volumes"], {"name": "var-run-argo", "emptyDir": {}}],
        },
    }


@pytest.mark.parametrize("case", [CASE, "freeze"])
def test_steps_are_let_in_and_policies_are_valid_to_the_letter(case: str) -> None:
    policies = Refusing(objects(case))
    assert len(policies.policies) == 2
    assert {each["metadata"]["name"]: found for each in policies.policies if (found := problems_in(each))} == {}
    assert policies.refusals(step(case), user="system:serviceaccount:argo:argo") == []


def test_no_matter_who_may_create_workflows_runs_the_template_with_arguments() -> None:
    assert Refusing(objects(CASE)).refusals(submitted(), user=SERVE) == []


def test_a_workflow_without_a_template_is_refused() -> None:
    wanted = submitted()
    del wanted["spec"]["workflowTemplateRef"]
    assert Refusing(objects(CASE)).refusals(wanted, user=SERVE) != []


def test_accounts_of_other_namespaces_and_people_are_not_held() -> None:
    wanted = submitted()
    wanted["spec"]["entrypoint"] = "close"
    for user in (f"system:serviceaccount:{NAMESPACE}-more:serve", "ann@bank.example"):
        assert Refusing(objects(CASE)).refusals(wanted, user=user) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda it: it["containers"][1].update(image="registry.example.com/evil@sha256:" + "6" * 64),
        lambda it: it["initContainers"].append({"name": "before", "image": EXECUTOR}),
        lambda it: it.update(hostNetwork=True),
        lambda it: it["volumes"].append({"name": "e", "hostPath": {"path": "/"}}),
        lambda it: it["containers"][1]["securityContext"].update(privileged=True),
    ],
    ids=["image", "another container", "network", "folder", "privileged"],
)
def test_no_other_pod_runs_as_a_step(change: Callable[[Json], object]) -> None:
    pod = step()
    assert pod["spec"]["serviceAccountName"] == account_of("support-llm")
    change(pod["spec"])
    assert Refusing(objects(CASE)).refusals(pod, user="ann@bank.example") != []
