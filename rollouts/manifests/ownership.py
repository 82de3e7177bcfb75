"""Whose an object is, and which fields of our own objects other controllers own. Pure.

An object without the label of this delivery is not written to: its name is all that it shares with ours, and users may
depend on it. Of our own objects, what Argo Rollouts has written is preserved when they are applied again. Lists and
selectors are applied as a whole: Kubernetes marks them atomic. A Service without the hash that Argo Rollouts put into
its selector would send users of the stable to every version; a route with the weights of a beginning would end a trial,
and its mirroring.
"""

from __future__ import annotations

from rollouts.kube.objects import at, labels_of, name_of
from rollouts.kube.resources import MANAGER, ROLLOUTS, SERVICES
from rollouts.manifests.conventions import ATTEMPT, canary_service, stable_service
from rollouts.manifests.routers import ROUTERS
from rollouts.model import ForeignObject
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY, MANAGED_BY_LABEL, POD_TEMPLATE_HASH, VERSION

HINT = (
    "nothing was written; name a Rollout of others at `fleet.rollout`, give the delivery another "
    "`metadata.name` or `fleet.namespace`, or let the one who owns these objects take them away"
)
"""What to do about objects of others."""


def foreign_object(live: Json, delivery: str) -> ForeignObject | None:
    """The object as somebody else's; None when it is this delivery's."""
    if labels_of(live).get(DELIVERY) == delivery:
        return None
    kind, place = str(live.get("kind", "object")), str(live["metadata"].get("namespace") or "")
    return ForeignObject(kind=kind, name=name_of(live), namespace=place, owner=owner_of(live))


_MARKS = (
    ("annotations", "meta.helm.sh/release-name", "managed by Helm release {}"),
    ("labels", MANAGED_BY_LABEL, "managed by {}"),
    ("annotations", "argocd.argoproj.io/tracking-id", "of Argo CD application {}"),
    ("labels", "argocd.argoproj.io/instance", "of Argo CD application {}"),
    ("labels", "kustomize.toolkit.fluxcd.io/name", "of Flux {}"),
    ("labels", "helm.toolkit.fluxcd.io/name", "of Flux {}"),
)
"""What tools put on what they manage; of one tool the first counts."""


def owner_of(live: Json) -> str:
    """Everything that an object says of who manages it; that nobody is named, when it says nothing."""
    labels, found = labels_of(live), dict[str, str]()
    if DELIVERY in labels:
        found["delivery"] = f"of delivery {labels[DELIVERY]}"
    for part, key, told in _MARKS:
        if mark := at(live, "metadata", part, key):
            found.setdefault(told[:10], told.format(str(mark).partition(":")[0]))
    for owner in live["metadata"].get("ownerReferences") or []:
        if owner.get("controller"):
            found[str(owner)] = f"controlled by {owner.get('kind')} {owner.get('name')}"
    if writer := last_writer(live):
        found["writer"] = f"last written by {writer}"
    return "; ".join(found.values()) or "it names no owner"


def last_writer(live: Json, field: str = "f:spec") -> str:
    """The field manager that wrote a part of the object last, past its status; empty when none is noted."""
    entries = [
        each
        for each in live["metadata"].get("managedFields") or []
        if not each.get("subresource") and field in (each.get("fieldsV1") or {})
    ]
    # RFC 3339 in UTC sorts as text; the time is optional. Of one second the other is named: we know what we wrote.
    by_age = sorted(entries, key=lambda each: (str(each.get("time") or ""), each.get("manager") != MANAGER))
    return str(by_age[-1].get("manager") or "") if by_age else ""


def with_preserved_fields(wanted: Json, live: Json) -> Json:
    """`wanted` with what is not ours to say, as the cluster has it; an object of another kind as it is."""
    kind, spec, delivery = wanted["kind"], wanted.get("spec") or {}, labels_of(wanted).get(DELIVERY, "")
    if kind == ROLLOUTS.kind:
        # The attempt of the same version: another one is made by a delivery alone.
        now, then = at(live, "spec", "template", default={}), spec["template"]
        attempt = at(now, "metadata", "annotations", ATTEMPT)
        if attempt is None or labels_of(now).get(VERSION) != labels_of(then).get(VERSION):
            return wanted
        annotations = {**then["metadata"].get("annotations", {}), ATTEMPT: attempt}
        template = {**then, "metadata": {**then["metadata"], "annotations": annotations}}
        return {**wanted, "spec": {**spec, "template": template}}
    if kind == SERVICES.kind and (narrowed := at(live, "spec", "selector", POD_TEMPLATE_HASH)):
        return {**wanted, "spec": {**spec, "selector": {**spec["selector"], POD_TEMPLATE_HASH: narrowed}}}
    for router in ROUTERS.values():
        if kind == router.resource.kind:
            routes = router(stable_service(delivery), canary_service(delivery))
            return routes.mirrored(routes.weighted(wanted, routes.weight(live)), routes.mirror(live))
    return wanted
