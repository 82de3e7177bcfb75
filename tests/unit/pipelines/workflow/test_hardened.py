"""What a namespace that enforces Pod Security "restricted" asks of a workflow's pods, and what they can reach."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from fakes.workflow.cases import CASES, GOLDEN, blueprint, objects, template

from pipelines.spec.delivery import Delivery
from pipelines.workflow.model import ENGINE, STEPS_OF
from pipelines.workflow.render import rendered, supporting_resources
from tidegate.core.names import DELIVERY
from tidegate.core.spec import SpecError, parse_spec

PINNED = "registry.example.com/vllm@sha256:" + "7" * 64


def containers(case: str) -> list[Any]:
    found = [each["container"] for each in template(case)["spec"]["templates"] if "container" in each]
    return [*found, *(each for one in template(case)["spec"]["templates"] for each in one.get("initContainers", ()))]


@pytest.mark.parametrize("case", CASES)
def test_every_pod_is_as_restricted_as_the_strictest_namespace_asks(case: str) -> None:
    pod = template(case)["spec"]["securityContext"]
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["runAsNonRoot"] and pod["runAsUser"] == pod["runAsGroup"] == 10001
    for container in containers(case):
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert {"/state", "/tmp"} <= {mount["mountPath"] for mount in container["volumeMounts"]}


@pytest.mark.parametrize("case", CASES)
def test_no_selector_of_engines_matches_a_step(case: str) -> None:
    labels = template(case)["spec"]["podMetadata"]["labels"]
    assert DELIVERY not in labels
    assert labels[STEPS_OF] == "support-llm"


def policy(case: str) -> Any:
    (found,) = (each for each in objects(case) if each["kind"] == "NetworkPolicy")
    return found["spec"]


@pytest.mark.parametrize("case", CASES)
def test_nobody_asks_a_step_and_no_step_asks_for_its_nodes_credentials(case: str) -> None:
    found = policy(case)
    assert found["podSelector"]["matchLabels"].items() <= template(case)["spec"]["podMetadata"]["labels"].items()
    assert found["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in found
    blocks = [each["ipBlock"] for each in found["egress"][0]["to"] if "ipBlock" in each]
    assert {block["except"][0] for block in blocks} == {"169.254.169.254/32", "fd00:ec2::254/128"}


def read(**workflow: Any) -> Delivery:
    spec = yaml.safe_load((GOLDEN / "gpu-build/delivery.yaml").read_text())
    build = {**spec["workflow"]["build"], **workflow.pop("build", {})}
    changed = {**spec, "workflow": {**spec["workflow"], "build": build, **workflow}}
    return parse_spec(yaml.safe_dump(changed), Delivery, file="delivery.yaml")


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"image": "registry.example.com/tidegate:1"}, "workflow.image"),
        ({"image": "registry.example.com/tidegate@sha256:55"}, "workflow.image"),
        ({"build": {"image": "registry.example.com/vllm:latest"}}, "workflow.build.image"),
        ({"build": {"base": "registry.example.com/vllm:0.32.0"}}, "workflow.build.base"),
    ],
)
def test_an_image_that_may_be_another_one_tomorrow_is_refused(changes: dict[str, Any], place: str) -> None:
    with pytest.raises(SpecError, match=rf"{place}: .*may be another image tomorrow; expected .*@sha256:DIGEST"):
        read(**changes)


def test_a_base_may_be_a_folder_of_the_pinned_image_it_is_built_in() -> None:
    spec = read(build={"base": "/bases/vllm", "image": PINNED})
    assert spec.workflow and spec.workflow.build and spec.workflow.build.base == "/bases/vllm"


def test_where_steps_may_go_can_be_written_down() -> None:
    whole = blueprint("gpu-build")
    settings = whole.settings.model_copy(update={"egress_to": ("10.20.0.0/16",)})
    found = supporting_resources(whole.model_copy(update={"settings": settings}))
    (written,) = (each["spec"] for each in found if each["kind"] == "NetworkPolicy")
    assert written["egress"] == [{"to": [{"namespaceSelector": {}}, {"ipBlock": {"cidr": "10.20.0.0/16"}}]}]


def test_steps_are_told_whom_to_believe_and_a_build_is_not() -> None:
    whole = blueprint("gpu-build")
    settings = whole.settings.model_copy(update={"trust": "whom", "ledger_key": "who"})
    found = rendered(whole.model_copy(update={"settings": settings}))[-1]["spec"]["templates"]
    asked = {"TIDEGATE_TRUST": "/trust/trust.yaml", "TIDEGATE_LEDGER_KEY": "/ledger/ledger.key"}
    folders = {"/trust", "/ledger"}
    told: dict[bool, int] = {True: 0, False: 0}
    for each in found:
        for container in [*([each["container"]] if "container" in each else []), *each.get("initContainers", ())]:
            variables = {each["name"]: each.get("value") for each in container["env"]}
            mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
            step = each["name"] != ENGINE
            assert (asked.items() <= variables.items(), folders <= mounted) == (step, step)
            assert step or not (asked.keys() & variables.keys() or folders & mounted)
            told[step] += 1
    assert told[True] and told[False]
