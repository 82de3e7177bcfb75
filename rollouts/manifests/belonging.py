"""Whose an object is: this delivery's, by its label, or somebody else's; and then whose. Pure.

An object that is there and does not say that it is this delivery's is not written to, whoever may own it: its name is
all that it shares with ours, and users may depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rollouts.kube.model import Json
from rollouts.kube.requests import MANAGER
from rollouts.manifests.conventions import DELIVERY
from rollouts.model import Stranger

MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"

HINT = (
    "nothing was written; give the delivery another `metadata.name` or `fleet.namespace`, or let whoever owns these "
    "objects take them away"
)
"""What to do about objects of others."""


def stranger(live: Json, delivery: str) -> Stranger | None:
    """The object as somebody else's; None when it is this delivery's."""
    metadata = live["metadata"]
    if _labels(live).get(DELIVERY) == delivery:
        return None
    return Stranger(
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
    labels, annotations = _labels(live), _annotations(live)
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


def _labels(live: Json) -> Mapping[str, str]:
    return live["metadata"].get("labels") or {}


def _annotations(live: Json) -> Mapping[str, str]:
    return live["metadata"].get("annotations") or {}
