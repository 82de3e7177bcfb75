"""What others have written into our objects since, and what has to stay when they are said again.

Lists and selectors are applied as a whole: Kubernetes marks them atomic. To say a Service again without the hash that
Argo Rollouts put into its selector would send users of the stable to every version; to say a route again with the
weights of a beginning would end a trial, and its copies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rollouts.kube.model import Json
from rollouts.kube.resources import HTTP_ROUTES, ROLLOUTS, SERVICES, VIRTUAL_SERVICES
from rollouts.manifests.conventions import ATTEMPT, POD_TEMPLATE_HASH, VERSION

_MIRROR = "RequestMirror"
_COPIES = ("mirror", "mirrorPercentage")


def carried_over(wanted: Json, live: Json) -> Json:
    """`wanted` with what is not ours to say, as the cluster has it; an object of another kind as it is."""
    carry = _CARRIERS.get(wanted["kind"])
    return {**wanted, "spec": carry(wanted["spec"], live.get("spec") or {})} if carry else wanted


def _rollout(wanted: Json, live: Json) -> Json:
    """The attempt of the same version: another one is made by a delivery alone."""
    now, then = live.get("template") or {}, wanted["template"]
    attempt = ((now.get("metadata") or {}).get("annotations") or {}).get(ATTEMPT)
    if attempt is None or _version(now) != _version(then):
        return wanted
    annotations = {**then["metadata"].get("annotations", {}), ATTEMPT: attempt}
    return {**wanted, "template": {**then, "metadata": {**then["metadata"], "annotations": annotations}}}


def _version(template: Json) -> str | None:
    return ((template.get("metadata") or {}).get("labels") or {}).get(VERSION)


def _service(wanted: Json, live: Json) -> Json:
    narrowed = (live.get("selector") or {}).get(POD_TEMPLATE_HASH)
    return {**wanted, "selector": {**wanted["selector"], POD_TEMPLATE_HASH: narrowed}} if narrowed else wanted


def _http_route(wanted: Json, live: Json) -> Json:
    """Rules by their place: the Gateway API gives them no names that every version knows."""
    before = live.get("rules") or []
    rules = [_rule(rule, before[place] if place < len(before) else {}) for place, rule in enumerate(wanted["rules"])]
    return {**wanted, "rules": rules}


def _rule(wanted: Json, live: Json) -> Json:
    weights = {ref.get("name"): ref.get("weight") for ref in live.get("backendRefs") or []}
    copies = [each for each in live.get("filters") or [] if each.get("type") == _MIRROR]
    filters = {"filters": [*wanted.get("filters", ()), *copies]} if copies else {}
    return {**wanted, **filters, "backendRefs": [_weighed(ref, weights, ref["name"]) for ref in wanted["backendRefs"]]}


def _virtual_service(wanted: Json, live: Json) -> Json:
    before = {route.get("name"): route for route in live.get("http") or []}
    return {**wanted, "http": [_route(route, before.get(route["name"], {})) for route in wanted["http"]]}


def _route(wanted: Json, live: Json) -> Json:
    weights = {_host(target): target.get("weight") for target in live.get("route") or []}
    copies = {key: live[key] for key in _COPIES if key in live}
    return {**wanted, **copies, "route": [_weighed(target, weights, _host(target)) for target in wanted["route"]]}


def _weighed(target: Json, weights: Mapping[Any, int | None], name: str) -> Json:
    weight = weights.get(name)
    return target if weight is None else {**target, "weight": weight}


def _host(target: Json) -> str:
    return str((target.get("destination") or {}).get("host", ""))


_CARRIERS: Mapping[str, Callable[[Json, Json], Json]] = {
    ROLLOUTS.kind: _rollout,
    SERVICES.kind: _service,
    HTTP_ROUTES.kind: _http_route,
    VIRTUAL_SERVICES.kind: _virtual_service,
}
