"""The writes that give a Rollout back, in their order: the Rollout, the route, Services, the rest, then labels. Pure.

Their own pods serve by then (`Adoption` brings them back before). Everything that was adopted is as it was; what
deliveries brought besides goes. A Service that came with the adoption goes last: nobody is led there any more, and
without the labels it selects nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rollouts.adoption.model import CREATED, OUR_LABELS, OURS, Place, Verb, Write, before, given_back
from rollouts.adoption.refusals import stable_set
from rollouts.argo.model import Rollout, hash_of
from rollouts.kube.objects import at, labels_of, said
from rollouts.kube.resources import HTTP_ROUTES, ROLLOUTS, SERVICES, VIRTUAL_SERVICES
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY, MANAGED_BY_LABEL

_ORDER = (HTTP_ROUTES.kind, VIRTUAL_SERVICES.kind, SERVICES.kind)
"""Nothing is led to a Service that goes before its route is back."""


def giveback(place: Place, delivery: str) -> Iterator[Write]:
    """All that are left to do."""
    yield from _of_rollout(place)
    yield from _of_objects(place, delivery)
    yield from _of_pods(place, delivery)
    yield from _of_new_services(place, delivery)
    if place.lease is not None and (place.rollout is None or not before(place.rollout)):
        yield from _gone_with_us(place.lease, delivery)


def returned(live: Json) -> Json:
    """The Rollout as it was; with no fewer engines than it has now, so that nobody loses one by this write."""
    changed = given_back(live)
    noted = at(changed, "spec", "replicas")
    if noted is not None and noted < Rollout(live).replicas:
        changed = {**changed, "spec": {**changed["spec"], "replicas": Rollout(live).replicas}}
    return changed


def _of_rollout(place: Place) -> Iterator[Write]:
    live = place.rollout
    if live is not None and before(live):
        what = "is as it was, with its own steps and labels"
        yield Write(said(live), what, Verb.REPLACE, live, returned(live))


def _of_objects(place: Place, delivery: str) -> Iterator[Write]:
    lives = [live for live in place.lives if live is not None and live["kind"] != ROLLOUTS.kind]
    lives.sort(key=lambda live: _ORDER.index(live["kind"]) if live["kind"] in _ORDER else len(_ORDER))
    for live in lives:
        if (noted := before(live)) and noted != CREATED:
            yield Write(said(live), "is as it was", Verb.REPLACE, live, given_back(live))
        elif live["kind"] != SERVICES.kind:
            yield from _gone_with_us(live, delivery)


def _of_new_services(place: Place, delivery: str) -> Iterator[Write]:
    for live in place.lives:
        if live is not None and live["kind"] == SERVICES.kind and before(live) in (None, CREATED):
            yield from _gone_with_us(live, delivery)


def _gone_with_us(live: Json, delivery: str) -> Iterator[Write]:
    if labels_of(live).get(DELIVERY) == delivery:
        yield Write(said(live), "came with tidegate, and goes", Verb.DELETE, live, live)


def _of_pods(place: Place, delivery: str) -> Iterator[Write]:
    stable = stable_set(place)
    if stable is None or place.rollout is None or labels_of(place.rollout).get(DELIVERY):
        return
    for pod in place.pods:
        ours = labels_of(pod).get(DELIVERY) == delivery
        if ours and hash_of(pod) == hash_of(stable) and not at(pod, "metadata", "deletionTimestamp"):
            labels = _gone(labels_of(pod))
            yield Write(said(pod), "has its own labels alone", Verb.PATCH, pod, {"metadata": {"labels": labels}})
    if labels_of(stable).get(DELIVERY) == delivery:
        yield Write(said(stable), "has its own labels alone", Verb.PATCH, stable, _plain(stable))


def _plain(stable: Json) -> Json:
    """A merge patch that takes our marks from a ReplicaSet and from the pods that it makes."""
    template = at(stable, "spec", "template", "metadata", default={})
    marks: Json = {part: _gone(template.get(part) or {}) for part in ("labels", "annotations")}
    if set(template.get("annotations") or {}) <= set(marks["annotations"]):
        marks["annotations"] = None
    own = at(stable, "metadata", "annotations", default={})
    metadata = {"labels": _gone(labels_of(stable)), "annotations": {key: None for key in own if key.startswith(OURS)}}
    return {"metadata": metadata, "spec": {"template": {"metadata": marks}}}


def _gone(found: Mapping[str, str]) -> Json:
    ours = set(OUR_LABELS) - {MANAGED_BY_LABEL}
    return {key: None for key in found if key in ours or key.startswith(OURS)}
