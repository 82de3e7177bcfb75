"""The writes that take a Rollout over, in their order: labels, Services, the route, then the Rollout. Pure.

Pods are not started again. Argo Rollouts knows a ReplicaSet by the hash of the Rollout's template, else by a template
that is equal (`FindNewReplicaSet` in utils/replicaset/replicaset.go). So the ReplicaSet's template gets our labels
first, which starts nothing, then the pods, and the Rollout's template last: it is equal to the ReplicaSet's by then,
and no new revision begins. Whatever reads the place again after each write finds what is left to do; so it can stop
anywhere, and be called again.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

from rollouts.adoption.model import AdoptedVersion, Place, Verb, Write, adopted, before
from rollouts.adoption.refusals import port_named, stable_set
from rollouts.adoption.traffic import adopted_service, new_service, split_route
from rollouts.argo.model import Rollout, hash_of
from rollouts.cluster.desired_objects import replacement
from rollouts.kube.objects import at, labels_of, said
from rollouts.kube.resources import HTTP_ROUTES, ROLLOUTS, SERVICES
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY, VERSION


def takeover(place: Place, who: AdoptedVersion) -> Iterator[Write]:
    """All that are left to do, of a place that nothing is in the way of; none once the Rollout is adopted."""
    if place.rollout is not None and before(place.rollout):
        return
    yield from _of_pods(place, who)
    yield from _of_services(place, who)
    yield from _of_route(place)
    yield from _of_others(place, who)
    yield from _of_rollout(place, who)


def _of_pods(place: Place, who: AdoptedVersion) -> Iterator[Write]:
    stable = stable_set(place)
    if stable is None:
        return
    template = at(stable, "spec", "template", "metadata", default={})
    has_all = _has(template.get("labels"), who.labels) and _has(template.get("annotations"), who.annotations)
    if not has_all or labels_of(stable).get(DELIVERY) != who.delivery:
        marks = {"labels": dict(who.labels), "annotations": dict(who.annotations)}
        patch = {"metadata": {"labels": dict(who.labels)}, "spec": {"template": {"metadata": marks}}}
        what = f"new pods of it get the labels of version {who.version}; no pod is started"
        yield Write(said(stable), what, Verb.PATCH, stable, patch)
    for pod in place.pods:
        serves = hash_of(pod) == hash_of(stable) and not at(pod, "metadata", "deletionTimestamp")
        if serves and not _has(labels_of(pod), who.labels):
            what = f"gets the labels of version {who.version}"
            yield Write(said(pod), what, Verb.PATCH, pod, {"metadata": {"labels": dict(who.labels)}})


def _of_services(place: Place, who: AdoptedVersion) -> Iterator[Write]:
    assert place.rollout is not None, "there is nothing to adopt"
    for wanted, live in zip(place.wanted, place.lives, strict=True):
        if wanted["kind"] != SERVICES.kind:
            continue
        if live is None:
            new = new_service(wanted, named=port_named(place.rollout))
            yield Write(said(new), "is new, and selects the same pods", Verb.CREATE, new, new)
        elif changed := adopted_service(live, who.delivery):
            yield Write(said(live), f"selects its pods by {DELIVERY}={who.delivery}", Verb.REPLACE, live, changed)


def _of_route(place: Place) -> Iterator[Write]:
    wanted = next(each for each in place.wanted if each["kind"] == HTTP_ROUTES.kind)
    live = place.live(HTTP_ROUTES.kind, wanted["metadata"]["name"])
    if live is not None and (changed := split_route(place, live)):
        hosts = ", ".join(map(str, at(live, "spec", "hostnames", default=[]))) or "every host"
        what = f"leads users of {hosts} to the stable, none to the canary"
        yield Write(said(live), what, Verb.REPLACE, live, changed)


def _of_others(place: Place, who: AdoptedVersion) -> Iterator[Write]:
    """What has the name of another object of a delivery's, such as a disruption budget: it stays as it is."""
    users = next(each for each in place.wanted if each["kind"] == HTTP_ROUTES.kind)
    for wanted, live in zip(place.wanted, place.lives, strict=True):
        theirs = live is not None and labels_of(live).get(DELIVERY) != who.delivery
        if live is None or not theirs or wanted is users or wanted["kind"] in {SERVICES.kind, ROLLOUTS.kind}:
            continue
        yield Write(said(live), "stays as it is, with our label", Verb.REPLACE, live, adopted(live, who.delivery))


def _of_rollout(place: Place, who: AdoptedVersion) -> Iterator[Write]:
    live = place.rollout
    if live is None:
        return
    what = f"has the steps of the spec; its pods stay, as version {who.version}"
    yield Write(said(live), what, Verb.REPLACE, live, taken_over(place.wanted[-1], live, who))


def taken_over(wanted: Json, live: Json, who: AdoptedVersion) -> Json:
    """The Rollout with everything of ours but the pods: strategy, label, and their own template with our marks."""
    mine = deepcopy(wanted)
    # A later delivery brings the templates of its analyses before it names them.
    mine["spec"]["strategy"]["canary"].pop("analysis", None)
    mine["spec"]["template"] = marked(live["spec"]["template"], who)
    mine["spec"]["replicas"] = Rollout(live).replicas
    whole = replacement(mine, live)
    kept = adopted(live, who.delivery, hash=Rollout(live).stable_hash, version=who.version, digest=who.digest)
    labels = {**labels_of(whole), VERSION: who.version}
    annotations = kept["metadata"]["annotations"]
    return {**whole, "metadata": {**whole["metadata"], "labels": labels, "annotations": annotations}}


def marked(template: Json, who: AdoptedVersion) -> Json:
    """Their pod template with the labels and annotations of the version that its pods serve."""
    metadata = template.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), **who.labels}
    annotations = {**(metadata.get("annotations") or {}), **who.annotations}
    return {**template, "metadata": {**metadata, "labels": labels, "annotations": annotations}}


def _has(found: object, wanted: object) -> bool:
    return isinstance(found, dict) and isinstance(wanted, dict) and wanted.items() <= found.items()
