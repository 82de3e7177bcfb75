"""Whether NetworkPolicies let one pod reach another (networking.k8s.io/v1), as far as they can be read.

A pod that a policy selects for ingress takes only what one of these policies allows. What cannot be known counts as
allowed.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address, ip_network

from rollouts.kube.model import NAME_OF_NAMESPACE
from rollouts.kube.objects import Labels, at, labels_of, matches
from tidegate.core.model import Json, Value


class Caller(Value):
    """The pod that asks."""

    pod: Json
    namespace_labels: Labels | None = None
    """None when its namespace may not be read: then its name is all that is known."""

    @property
    def namespace(self) -> str:
        """Where it runs."""
        return str(at(self.pod, "metadata", "namespace", default=""))


class ContainerPort(Value):
    """Of the pod that is asked; TCP."""

    name: str
    number: int


def policies_for(policies: Iterable[Json], labels: Labels) -> list[Json]:
    """Those that decide what comes into a pod with these labels; with none, everything does."""
    return [
        policy
        for policy in policies
        if "Ingress" in at(policy, "spec", "policyTypes", default=["Ingress"])
        and matches(at(policy, "spec", "podSelector", default={}), labels)
    ]


def allows(policy: Json, caller: Caller, port: ContainerPort) -> bool:
    """Whether one of its rules allows it."""
    home = str(at(policy, "metadata", "namespace", default=""))
    for rule in at(policy, "spec", "ingress", default=[]):
        peers, ports = rule.get("from") or [], rule.get("ports") or []
        taken = not peers or any(_is(peer, caller, home) for peer in peers)
        if taken and (not ports or any(_opens(entry, port) for entry in ports)):
            return True
    return False


def _is(peer: Json, caller: Caller, home: str) -> bool:
    if peer.get("ipBlock"):
        return _within(peer["ipBlock"], caller.pod)
    places = peer.get("namespaceSelector")
    inside = caller.namespace == home if places is None else _takes(places, caller)
    return inside and matches(peer.get("podSelector") or {}, labels_of(caller.pod))


def _takes(places: Json, caller: Caller) -> bool:
    name = {NAME_OF_NAMESPACE: caller.namespace}
    if caller.namespace_labels is not None:
        return matches(places, {**caller.namespace_labels, **name})
    asked = {
        *at(places, "matchLabels", default={}),
        *(one["key"] for one in at(places, "matchExpressions", default=[])),
    }
    return not asked <= set(name) or matches(places, name)


def _within(block: Json, pod: Json) -> bool:
    told = [at(one, "ip") for one in at(pod, "status", "podIPs", default=[])] or [at(pod, "status", "podIP")]
    known = [ip_address(one) for one in told if one]
    inside, outside = ip_network(block["cidr"]), [ip_network(one) for one in block.get("except") or []]
    return not known or any(one in inside and not any(one in out for out in outside) for one in known)


def _opens(entry: Json, port: ContainerPort) -> bool:
    if entry.get("protocol", "TCP") != "TCP":
        return False
    first = entry.get("port")
    if isinstance(first, int):
        return first <= port.number <= int(entry.get("endPort") or first)
    return first is None or first == port.name
