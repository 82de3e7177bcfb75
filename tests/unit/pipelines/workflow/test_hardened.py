"""What steps may do in their cluster, and which workflows and pods are let in."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from fakes.clusters.admission import Refusing
from fakes.schemas import problems_in
from fakes.workflow.cases import GOLDEN, blueprint, objects, template

from pipelines.spec.delivery import Delivery
from pipelines.spec.workflow import account_of
from pipelines.workflow.model import ENGINE, workflow
from pipelines.workflow.render import blueprint_of, rendered, supporting_resources
from rollouts.manifests.theirs_spec import ReferencedFleetSpec
from tidegate.core.errors import UsageError
from tidegate.core.model import Json
from tidegate.core.spec import SpecError, parse_spec

PINNED = "registry.example.com/vllm@sha256:" + "7" * 64


def read(**workflow: Any) -> Delivery:
    spec = yaml.safe_load((GOLDEN / "gpu-build/delivery.yaml").read_text())
    build = {**spec["workflow"]["build"], **workflow.pop("build", {})}
    changed = {**spec, "workflow": {**spec["workflow"], "build": build, **workflow}}
    return parse_spec(yaml.safe_dump(changed), Delivery, file="delivery.yaml")


def test_a_base_may_be_a_folder_of_the_pinned_image_it_is_built_in() -> None:
    spec = read(build={"base": "/bases/vllm", "image": PINNED})
    assert spec.workflow and spec.workflow.build and spec.workflow.build.base == "/bases/vllm"


def test_a_build_beside_a_rollout_of_others_is_refused_for_want_of_a_node() -> None:
    names = dict.fromkeys(("name", "container", "stable_service", "canary_service", "route"), "chat")
    region = {"entry": "https://eu.example", "prometheus": "http://p.example"}
    theirs = {"kind": "argo", "namespace": "llm", "rollout": names, "regions": {"eu-west-1": region}}
    whole = blueprint("gpu-build").model_copy(update={"fleet": ReferencedFleetSpec.model_validate(theirs)})
    with pytest.raises(UsageError, match=r"^workflow\.build: found a fleet of others"):
        rendered(whole)


def test_where_steps_may_go_can_be_written_down() -> None:
    whole = blueprint("gpu-build")
    settings = whole.settings.model_copy(update={"egress_to": ("10.20.0.0/16",)})
    found = supporting_resources(whole.model_copy(update={"settings": settings}))
    (written,) = (each["spec"] for each in found if each["kind"] == "NetworkPolicy")
    assert written["egress"] == [{"to": [{"namespaceSelector": {}}, {"ipBlock": {"cidr": "10.20.0.0/16"}}]}]


def asking(**prometheus: Any) -> Delivery:
    """A spec whose Prometheus wants to know who asks, with all that an operator may put into the cluster."""
    spec = yaml.safe_load((GOLDEN / "gpu-build/delivery.yaml").read_text())
    region = spec["fleet"]["regions"]["eu-west-1"]
    region["prometheus"] = {"url": region["prometheus"], "rollouts": "http://inside:9090", **prometheus}
    spec["workflow"] |= {"trust": "whom", "ledger_key": "who"}
    return parse_spec(yaml.safe_dump(spec), Delivery, file="delivery.yaml")


def test_a_build_is_given_nothing_that_only_steps_may_read() -> None:
    token = {"env": "TIDEGATE_SPEC_TOKEN", "secret": {"name": "prometheus.eu", "key": "token"}}
    spec = asking(ca={"secret": {"name": "prometheus.eu", "key": "ca.crt"}}, auth={"bearer": token})
    found = rendered(blueprint_of(spec, GOLDEN / "gpu-build/delivery.yaml"))[-1]["spec"]
    folders = {"/kube", "/trust", "/ledger", "/secrets/prometheus.eu"}
    places = {"KUBECONFIG": "/kube/config", "TIDEGATE_TRUST": "/trust/trust.yaml", "TIDEGATE_SECRETS": "/secrets"}
    places["TIDEGATE_LEDGER_KEY"] = "/ledger/ledger.key"
    for each in found["templates"]:
        for container in [*([each["container"]] if "container" in each else []), *each.get("initContainers", ())]:
            variables = {one["name"]: one.get("value") for one in container["env"]}
            mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
            if each["name"] == ENGINE:
                assert not places.keys() & variables.keys() and not folders & mounted
            else:
                assert places.items() <= variables.items() and folders <= mounted, each["name"]
    (kept,) = (each for each in found["volumes"] if each.get("secret", {}).get("secretName") == "prometheus.eu")
    assert kept["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}, {"key": "token", "path": "token"}]


def test_a_file_alone_is_nothing_that_a_pod_has() -> None:
    with pytest.raises(SpecError, match=r"eu-west-1\.prometheus in a file alone, which no pod has"):
        asking(auth={"bearer": {"file": "/run/secrets/tidegate/token"}})


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
