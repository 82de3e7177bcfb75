"""Whether requests of the gateway reach the engines."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rollouts.doctor.admission import Port, lets_in, over
from rollouts.doctor.checking import of_rollout
from rollouts.doctor.model import Ailment, Finding, Gateway, Severity, Snapshot
from rollouts.doctor.objects import at, containers_of, labels_of, matches, name_of, said
from rollouts.doctor.strategy import template
from rollouts.kube.model import Json
from rollouts.kube.resources import NETWORK_POLICIES, PODS
from rollouts.manifests.conventions import PORT_NAME

GATEWAY_SHUT_OUT = Ailment(
    code="gateway-shut-out",
    severity=Severity.ERROR,
    cause="the network policies of the engines let nothing in from where the gateway's proxies run (those of Envoy "
    "Gateway run in its own namespace, wherever the gateway is): users get errors",
    cure="name that namespace in fleet.gateway.pods_in and apply the set-up part of `tidegate rollout render`, "
    "or let it in by a policy of your own",
)
AILMENTS = (GATEWAY_SHUT_OUT,)


@of_rollout
def admitted(snapshot: Snapshot, rollout: Json) -> Iterator[Finding]:
    """Some proxy of every gateway may ask every engine."""
    port = _port(snapshot, rollout)
    if snapshot.unread(NETWORK_POLICIES) or port is None:
        return
    for gateway in snapshot.gateways:
        for policies in _policies(snapshot, rollout):
            if policies and gateway.proxies and not _reaches(gateway, policies, port):
                yield _shut_out(gateway, policies)
                break


def _policies(snapshot: Snapshot, rollout: Json) -> Iterator[list[Json]]:
    """Those over each engine; labels of pods and of their template differ by what Argo Rollouts adds."""
    selector = at(rollout, "spec", "selector", default={})
    engines = [labels_of(pod) for pod in snapshot.all(PODS) if selector and matches(selector, labels_of(pod))]
    for labels in engines or [labels_of(template(snapshot, rollout))]:
        yield over(snapshot.all(NETWORK_POLICIES), labels)


def _reaches(gateway: Gateway, policies: list[Json], port: Port) -> bool:
    return any(lets_in(policy, proxy, port) for policy in policies for proxy in gateway.proxies)


def _shut_out(gateway: Gateway, policies: list[Json]) -> Finding:
    places = sorted({proxy.namespace for proxy in gateway.proxies})
    return GATEWAY_SHUT_OUT.found(
        f"no request of Gateway {gateway.name} reaches the engines: its proxies run in namespace {', '.join(places)}",
        *(f"pod {name_of(proxy.pod)} in namespace {proxy.namespace}" for proxy in gateway.proxies[:1]),
        *(f"{said(policy)} lets in: {_rules(policy)}" for policy in policies),
    )


def _rules(policy: Json) -> str:
    rules = at(policy, "spec", "ingress", default=[])
    return json.dumps(rules, separators=(",", ":")) if rules else "nothing"


def _port(snapshot: Snapshot, rollout: Json) -> Port | None:
    """Where engines are asked; None where none is named so, which is another finding."""
    ports = [
        one for container in containers_of(template(snapshot, rollout)) for one in at(container, "ports", default=[])
    ]
    found = next((one for one in ports if one.get("name") == PORT_NAME), None)
    return Port(name=PORT_NAME, number=int(found["containerPort"])) if found else None


CHECKS = (admitted,)
