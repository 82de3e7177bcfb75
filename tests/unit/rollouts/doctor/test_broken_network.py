"""Set-ups in which requests of the gateway never arrive at an engine."""

from __future__ import annotations

import pytest
from fakes.clusters.doctor_region import NAME, Region, fleet, proxy

from rollouts.kube.resources import NAMESPACES, NETWORK_POLICIES, PODS
from tidegate.core.model import Json

GATEWAY = {"name": "users", "namespace": "gateways", "hosts": ["support-llm.example.com"]}
ENVOY = "envoy-gateway-system"


def only(region: Region, *rules: Json) -> None:
    """Somebody replaces the policy's rules."""
    region.edit(NETWORK_POLICIES, NAME, lambda it: it["spec"].update(ingress=list(rules)))


def place(name: str) -> Json:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


async def test_a_policy_that_knows_the_namespace_of_the_gateway_alone() -> None:
    region = Region(fleet(gateway={**GATEWAY, "pods_in": []}))
    (found,) = await region.examined()
    assert found.code == "gateway-shut-out"
    assert found.what == "no request of Gateway users reaches the engines: its proxies run in namespace " + ENVOY
    assert found.evidence[0] == f"pod envoy-users in namespace {ENVOY}"
    assert f"NetworkPolicy {NAME} lets in: " in found.evidence[1] and '"monitoring"' in found.evidence[1]


async def test_proxies_in_a_namespace_of_their_own(region: Region) -> None:
    region.cluster.delete(PODS, "envoy-users", namespace=ENVOY)
    region.cluster.create_namespace("edge")
    region.bring(proxy("edge"))
    assert await region.found() == {"gateway-shut-out"}
    region = Region(fleet(gateway={**GATEWAY, "pods_in": ["edge"]}))
    region.cluster.delete(PODS, "envoy-users", namespace=ENVOY)
    region.cluster.create_namespace("edge")
    region.bring(proxy("edge"))
    assert await region.examined() == ()


async def test_proxies_of_another_gateway_of_that_name(region: Region) -> None:
    only(region, {"from": [place("gateways")]})
    theirs = {"metadata": {"labels": {"gateway.envoyproxy.io/owning-gateway-namespace": "theirs"}}}
    region.cluster.patch(PODS, "envoy-users", theirs, namespace=ENVOY)
    assert await region.examined() == ()


async def test_proxies_of_istio_next_to_their_gateway(region: Region) -> None:
    region.cluster.delete(PODS, "envoy-users", namespace=ENVOY)
    region.cluster.create_namespace("gateways")
    region.bring(proxy("gateways", **{"gateway.networking.k8s.io/gateway-name": "users"}))
    assert await region.examined() == ()
    only(region, {"from": [place(ENVOY)]})
    assert await region.found() == {"gateway-shut-out"}


async def test_a_policy_that_lets_the_gateway_in_to_another_port(region: Region) -> None:
    only(region, {"from": [place(ENVOY)], "ports": [{"port": 9090}]})
    assert await region.found() == {"gateway-shut-out"}


async def test_a_policy_that_lets_nothing_in(region: Region) -> None:
    only(region)
    (found,) = await region.examined()
    assert (found.code, found.evidence[-1]) == ("gateway-shut-out", f"NetworkPolicy {NAME} lets in: nothing")


@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"from": [{"namespaceSelector": {}}], "ports": [{"port": 8000}]},
        {
            "from": [{"namespaceSelector": {"matchLabels": {"tier": "edge"}}}],
            "ports": [{"port": 7000, "endPort": 9000}],
        },
        {"from": [{**place(ENVOY), "podSelector": {"matchLabels": {"app.kubernetes.io/component": "proxy"}}}]},
        {"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]},
    ],
    ids=["everybody", "every-namespace", "by-label", "by-pod", "by-address"],
)
async def test_a_gateway_that_is_let_in_otherwise(region: Region, rule: Json) -> None:
    region.cluster.patch(NAMESPACES, ENVOY, {"metadata": {"labels": {"tier": "edge"}}})
    only(region, rule)
    assert await region.examined() == ()


async def test_a_second_policy_that_lets_the_gateway_in(region: Region) -> None:
    only(region)
    spec = {"podSelector": {}, "ingress": [{"from": [place(ENVOY)]}]}
    region.cluster.create(NETWORK_POLICIES, {"metadata": {"name": "gateways"}, "spec": spec})
    assert await region.examined() == ()


async def test_proxies_that_may_not_be_listed_are_no_finding(region: Region) -> None:
    only(region)
    readable = ["rollouts", "httproutes", "networkpolicies"]
    region.api.access.allow_only({"apiGroups": ["*"], "resources": readable, "verbs": ["get", "list"]})
    found = {one.code: one for one in await region.examined()}
    assert set(found) == {"not-looked-at"}
    assert "the proxies of Gateway users" in found["not-looked-at"].evidence[0]


async def test_policies_that_may_not_be_listed_are_no_finding(region: Region) -> None:
    only(region)
    region.api.access.allow_only({"apiGroups": ["*"], "resources": ["rollouts", "pods"], "verbs": ["get", "list"]})
    found = {one.code: one for one in await region.examined()}
    assert set(found) == {"not-looked-at"}
    assert "networkpolicies" in found["not-looked-at"].evidence[0]


async def test_proxies_are_looked_for_by_namespace_where_pods_of_all_may_not_be_listed(region: Region) -> None:
    readable = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}
    region.api.access.allow_only(readable)
    only(region, {"from": [{"namespaceSelector": {"matchLabels": {"tier": "edge"}}}]})
    # Which labels the namespace has may not be read.
    assert await region.found() == set()
    only(region, {"from": [place("gateways")]})
    assert await region.found() == {"gateway-shut-out"}
