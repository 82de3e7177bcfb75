"""The Services and the route of an adopted Rollout: what selects its pods, and who leads users there. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

from rollouts.adoption.model import CREATED, Place, adopted
from rollouts.argo.model import Rollout, hash_of
from rollouts.kube.objects import at, labels_of, selects
from rollouts.manifests.conventions import (
    BEFORE_ADOPTION,
    PORT,
    SERVICE_PORT,
    canary_service,
    stable_service,
)
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY, POD_TEMPLATE_HASH


@dataclass(frozen=True)
class UsersRule:
    """One rule of a route that leads users to the Rollout's pods."""

    at: int
    """Its place in the route."""
    refs: Sequence[Json]
    """Its backends."""
    foreign: Sequence[Json]
    """Those of them with weight that lead elsewhere."""


def users_rules(place: Place, route: Json) -> tuple[UsersRule, ...]:
    """Every rule with a backend that selects the stable's pods."""
    arms = _arms(place)
    ours = _selecting(place) | set(arms)
    found: list[UsersRule] = []
    for index, rule in enumerate(at(route, "spec", "rules", default=[])):
        refs = [ref for ref in rule.get("backendRefs") or [] if ref.get("kind", "Service") == "Service"]
        if any(ref.get("name") in ours for ref in refs):
            foreign = [
                ref for ref in rule.get("backendRefs") or [] if ref.get("name") not in ours and ref.get("weight", 1)
            ]
            found.append(UsersRule(index, refs, foreign))
    return tuple(found)


def split_route(place: Place, route: Json) -> Json | None:
    """The route with both arms in its one rule, all users on the stable; None where it has them, and our label."""
    stable, canary = _arms(place)
    (rule,) = users_rules(place, route)
    if not {stable, canary} <= {ref.get("name") for ref in rule.refs}:
        spec = deepcopy(route["spec"])
        like = {key: value for key, value in rule.refs[0].items() if key not in {"name", "port", "weight"}}
        spec["rules"][rule.at]["backendRefs"] = [
            {**like, "name": name, "port": _port(place, name), "weight": weight}
            for name, weight in ((stable, 100), (canary, 0))
        ]
        return adopted(route, _delivery(place), spec)
    return None if labels_of(route).get(DELIVERY) else adopted(route, _delivery(place))


def adopted_service(live: Json, delivery: str) -> Json | None:
    """A Service of theirs that selects by our label, as narrow as Argo Rollouts has made it; None where it does."""
    now = at(live, "spec", "selector", default={})
    narrowed = {key: value for key, value in now.items() if key == POD_TEMPLATE_HASH}
    selector = {DELIVERY: delivery, **narrowed}
    if now == selector and labels_of(live).get(DELIVERY) == delivery:
        return None
    return adopted(live, delivery, {**live["spec"], "selector": selector})


def new_service(wanted: Json, *, named: bool) -> Json:
    """A Service that was not there; `named` tells whether pods of both have a port of the same name."""
    changed = deepcopy(wanted)
    annotations = {**(changed["metadata"].get("annotations") or {}), BEFORE_ADOPTION: json.dumps(CREATED)}
    changed["metadata"]["annotations"] = annotations
    if not named:
        for port in changed["spec"]["ports"]:
            port["targetPort"] = PORT
    return changed


def _selecting(place: Place) -> set[str]:
    """Names of Services that select the stable's pods."""
    if place.rollout is None:
        return set()
    stable = Rollout(place.rollout).stable_hash
    pods = [labels_of(pod) for pod in place.pods if hash_of(pod) == stable]
    return {
        str(each["metadata"]["name"])
        for each in place.services
        if any(selects(at(each, "spec", "selector", default={}), labels) for labels in pods)
    }


def _port(place: Place, name: str) -> int:
    found = next((each for each in place.services if each["metadata"]["name"] == name), None)
    return int(at(found, "spec", "ports", 0, "port", default=SERVICE_PORT))


def _delivery(place: Place) -> str:
    return str(place.wanted[-1]["metadata"]["labels"][DELIVERY])


def _arms(place: Place) -> tuple[str, str]:
    delivery = _delivery(place)
    return stable_service(delivery), canary_service(delivery)
