"""Whose an object is, and which fields of our own objects other controllers own. Pure.

An object without the label of this delivery is not written to: its name is all that it shares with ours, and users may
depend on it. Of our own objects, what Argo Rollouts has written is preserved when they are applied again. Lists and
selectors are applied as a whole: Kubernetes marks them atomic. A Service without the hash that Argo Rollouts put into
its selector would send users of the stable to every version; a route with the weights of a beginning would end a trial,
and its mirroring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from rollouts.kube.model import MANAGER
from rollouts.kube.objects import at, labels_of
from rollouts.kube.resources import ROLLOUTS, SERVICES
from rollouts.manifests.conventions import ATTEMPT
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
    metadata = live["metadata"]
    if labels_of(live).get(DELIVERY) == delivery:
        return None
    return ForeignObject(
        kind=str(live.get("kind", "object")),
        name=str(metadata["name"]),
        namespace=str(metadata.get("namespace") or ""),
        owner=owner_of(live),
    )


def owner_of(live: Json) -> str:
    """Everything that an object says of who manages it; that nobody is named, when it says nothing."""
    return "; ".join(_owners(live)) or "it names no owner"


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


def _owners(live: Json) -> Iterator[str]:
    labels, annotations = labels_of(live), at(live, "metadata", "annotations", default={})
    if DELIVERY in labels:
        yield f"of delivery {labels[DELIVERY]}"
    yield from _tools(labels, annotations)
    for owner in live["metadata"].get("ownerReferences") or []:
        if owner.get("controller"):
            yield f"controlled by {owner.get('kind')} {owner.get('name')}"
    if writer := last_writer(live):
        yield f"last written by {writer}"


def _tools(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Iterator[str]:
    """Helm, Argo CD and Flux by the marks that they put on what they manage; others by the common label."""
    manager = labels.get(MANAGED_BY_LABEL, "")
    release = annotations.get("meta.helm.sh/release-name")
    tracked = annotations.get("argocd.argoproj.io/tracking-id", "").partition(":")[0]
    application = tracked or labels.get("argocd.argoproj.io/instance")
    flux = labels.get("kustomize.toolkit.fluxcd.io/name") or labels.get("helm.toolkit.fluxcd.io/name")
    if release:
        yield f"managed by Helm release {release}"
    elif manager:
        yield f"managed by {manager}"
    if application:
        yield f"of Argo CD application {application}"
    if flux:
        yield f"of Flux {flux}"


def with_preserved_fields(wanted: Json, live: Json) -> Json:
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
    """Argo Rollouts narrows a Service to pods of one version."""
    narrowed = (live.get("selector") or {}).get(POD_TEMPLATE_HASH)
    return {**wanted, "selector": {**wanted["selector"], POD_TEMPLATE_HASH: narrowed}} if narrowed else wanted


_CARRIERS: Mapping[str, Callable[[Json, Json], Json]] = {
    ROLLOUTS.kind: _rollout,
    SERVICES.kind: _service,
    **{router.resource.kind: router.kept for router in ROUTERS.values()},
}
