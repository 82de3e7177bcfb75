"""What an attacker would look for in a region's objects, and does not find."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.fleet import fleet_spec, release
from fakes.schemas import problems_in

from rollouts.manifests.conventions import RenderPart
from rollouts.manifests.render import render
from tidegate.core.model import Json

CLAIM = {"pod": {"cache": {"claim": "weights", "secret": "store"}}}


def rendered(kind: str, **changes: Any) -> dict[str, Json]:
    objects = render(fleet_spec(**changes), release())
    return {each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == kind}


def pod(**changes: Any) -> Json:
    found: Json = rendered("Rollout", **changes)["support-llm"]["template"]["spec"]
    return found


@pytest.mark.parametrize("nodes", [{}, {"capacity": "spot"}], ids=["on-demand", "spot with a node termination handler"])
def test_no_engine_reaches_the_metadata_server_unless_it_has_to_ask_it(nodes: dict[str, str]) -> None:
    policy = rendered("NetworkPolicy", nodes=nodes)["support-llm"]
    assert [rule for rule in policy["egress"] if "ipBlock" in str(rule)] == []
    assert "--spot" not in pod(nodes=nodes)["containers"][0]["args"]


def test_one_that_has_to_reaches_one_port_of_it() -> None:
    nodes = {"capacity": "spot", "cloud": "aws"}
    asked = [rule for rule in rendered("NetworkPolicy", nodes=nodes)["support-llm"]["egress"] if "ipBlock" in str(rule)]
    assert asked == [{"to": [{"ipBlock": {"cidr": "169.254.169.254/32"}}], "ports": [{"port": 80, "protocol": "TCP"}]}]
    assert "--spot" in pod(nodes=nodes)["containers"][0]["args"]


def test_engines_that_none_of_the_keys_signed_do_not_start() -> None:
    objects = render(fleet_spec(**CLAIM), release(public_keys="one\ntwo\n"))
    found = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    assert found["ConfigMap", "support-llm-keys"]["data"] == {"engines.pem": "one\ntwo\n"}
    spec = found["Rollout", "support-llm"]["spec"]["template"]["spec"]
    assert {"name": "keys", "configMap": {"name": "support-llm-keys"}} in spec["volumes"]
    (pulls,), (serves,) = spec["initContainers"], spec["containers"]
    for container, words in ((pulls, pulls["command"]), (serves, serves["args"])):
        assert words[-2:] == ["--public-key", "/etc/tidegate/keys/engines.pem"]
        assert {"name": "keys", "mountPath": "/etc/tidegate/keys", "readOnly": True} in container["volumeMounts"]
    assert [str(problem) for each in objects for problem in problems_in(each)] == []


def test_the_keys_are_an_administrators_and_not_a_deliverys() -> None:
    serving = render(fleet_spec(), release(public_keys="one\n"), parts=(RenderPart.SERVING,))
    assert [each for each in serving if each["kind"] == "ConfigMap"] == []
    assert "configmaps" not in str(
        [each for each in render(fleet_spec(), release(driver=True)) if each["kind"] == "Role"]
    )
