"""Why a Rollout cannot be adopted as it is: each reason with what was found and what would be right. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rollouts.adoption.model import AdoptedVersion, Place, before
from rollouts.adoption.traffic import users_rules
from rollouts.argo.model import Rollout, hash_of
from rollouts.kube.objects import at, containers_of, labels_of
from rollouts.kube.pods import is_pod_ready
from rollouts.kube.resources import HTTP_ROUTES
from rollouts.manifests.conventions import PORT, PORT_NAME
from rollouts.manifests.ownership import owner_of
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY, VERSION


def refusals(place: Place, who: AdoptedVersion) -> tuple[str, ...]:
    """All of them; none where nothing is in the way."""
    rollout = place.rollout
    if rollout is None:
        return (f"there is no Rollout {who.delivery}: the delivery needs the Rollout's name",)
    if whose := _whose(rollout, who):
        return (whose,)
    found = [*_of_its_state(place, rollout), *_of_its_spec(place, rollout), *_of_its_route(place, who)]
    return tuple(found)


def adopted_version(place: Place) -> str:
    """The version as which its pods were adopted; empty before they were."""
    return next((version for each in place.replica_sets if (version := _version(each)) and _is_stable(each, place)), "")


def _whose(rollout: Json, who: AdoptedVersion) -> str:
    owner = labels_of(rollout).get(DELIVERY)
    if owner is None:
        return ""
    if owner != who.delivery:
        return f"Rollout {who.delivery} is of delivery {owner}"
    return "" if before(rollout) else f"Rollout {who.delivery} was made by tidegate: there is nothing to adopt"


def _of_its_state(place: Place, rollout: Json) -> Iterator[str]:
    argo = Rollout(rollout)
    stable = stable_set(place)
    if stable is None:
        yield f"Rollout {argo.name} has no stable ReplicaSet"
        return
    if argo.in_progress or argo.aborted or argo.paused_by_spec:
        yield f"Rollout {argo.name} is not at rest: finish, undo or resume what it does first"
    ready = sum(is_pod_ready(pod) for pod in place.pods if hash_of(pod) == hash_of(stable))
    if ready < argo.replicas:
        yield f"{ready} of {argo.replicas} pods of Rollout {argo.name} are ready"
    if stable["metadata"]["name"] != f"{argo.name}-{hash_of(stable)}":
        yield f"ReplicaSet {stable['metadata']['name']} is not named as Argo Rollouts names its own"


def _of_its_spec(place: Place, rollout: Json) -> Iterator[str]:
    spec, wanted = rollout.get("spec") or {}, place.wanted[-1]["spec"]
    if spec.get("template") is None:
        kind = at(spec, "workloadRef", "kind")
        yield f"it borrows its pods by workloadRef from a {kind}: give it a template of its own"
        return
    if not at(spec, "selector", "matchLabels") or at(spec, "selector", "matchExpressions"):
        yield "its selector has matchExpressions, which pods of tidegate cannot be given: matchLabels alone"
    if theirs := set(spec.get("strategy") or {}) - {"canary"}:
        yield f"its strategy is {', '.join(theirs)}: give it a canary"
    asked = wanted.get("replicas")
    if asked is not None and before(rollout) is None and asked != Rollout(rollout).replicas:
        yield f"it has {Rollout(rollout).replicas} pods, and the spec wants {asked}: set `fleet.replicas`"
    yield from _of_its_port(place, rollout)


def _of_its_port(place: Place, rollout: Json) -> Iterator[str]:
    """Pods of both serve behind one Service: at a port with a name that both have, or with a number that both have."""
    named, numbered = port_named(rollout), PORT in _ports(rollout)
    if not (named or numbered):
        yield f"its engines have neither a port named {PORT_NAME} nor port {PORT}, where engines of tidegate listen"
    if place.policies and not named:
        name = place.policies[0]["metadata"]["name"]
        yield f"NetworkPolicy {name} lets requests in at a port named {PORT_NAME}, which its pods do not have"


def _of_its_route(place: Place, who: AdoptedVersion) -> Iterator[str]:
    wanted = next((each for each in place.wanted if each["kind"] == HTTP_ROUTES.kind), None)
    if wanted is None:
        yield "its users are split by Istio: only an HTTPRoute can be adopted"
        return
    name = wanted["metadata"]["name"]
    live = place.live(HTTP_ROUTES.kind, name)
    if live is None:
        yield f"there is no HTTPRoute {name} that leads its users"
        return
    if (whose := labels_of(live).get(DELIVERY)) not in {None, who.delivery}:
        yield f"HTTPRoute {name} is of delivery {whose} ({owner_of(live)})"
    rules = users_rules(place, live)
    if len(rules) != 1:
        yield f"{len(rules)} rules of HTTPRoute {name} lead to its pods: exactly one can be split"
    for rule in rules:
        foreign = [str(ref.get("name")) for ref in rule.foreign]
        if foreign:
            others = ", ".join(foreign)
            yield f"a rule of HTTPRoute {name} splits its users with {others}, which selects none of its pods"


def stable_set(place: Place) -> Json | None:
    """The ReplicaSet that serves."""
    return next((each for each in place.replica_sets if _is_stable(each, place)), None)


def _is_stable(replica_set: Json, place: Place) -> bool:
    return place.rollout is not None and hash_of(replica_set) == Rollout(place.rollout).stable_hash != ""


def _version(replica_set: Json) -> str:
    return str(at(replica_set, "spec", "template", "metadata", "labels", VERSION, default=""))


def port_named(rollout: Json) -> bool:
    """Whether its engines have a port of the name that Services of tidegate ask for."""
    return any(
        port.get("name") == PORT_NAME
        for each in containers_of(rollout["spec"].get("template") or {})
        for port in each.get("ports") or []
    )


def _ports(rollout: Json) -> set[int]:
    found = containers_of(rollout["spec"].get("template") or {})
    return {int(port.get("containerPort") or 0) for each in found for port in each.get("ports") or []}
