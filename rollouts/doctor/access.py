"""Checks of what a delivery may do: whose the objects are, definitions, rights, clocks, admission policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from rollouts.doctor.model import Observation, Snapshot, Unread, error, warning
from rollouts.kube.objects import at, name_of, said
from rollouts.kube.resources import ADMISSION_BINDINGS, ADMISSION_POLICIES
from tidegate.core.model import Json


@error(
    "not-ours",
    cause="objects of somebody else have the names that this delivery would use: a delivery is refused before it "
    "writes anything, and they serve whom they serve",
    remediation="name a Rollout of others at `fleet.rollout`, give the delivery another "
    "`metadata.name` or `fleet.namespace`, or let their owner delete them",
)
def _not_ours(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    if found := snapshot.foreign_objects:
        count = f"{len(found)} object{'s' if len(found) > 1 else ''}"
        yield f"{count} of others where {snapshot.target.delivery} would have its own", *map(str, found)


@error(
    "crd-missing",
    cause="Argo Rollouts, the Gateway API, Istio or the Prometheus Operator is not installed, or its definitions do "
    "not serve the version that tidegate speaks; an upgrade may have removed them",
    remediation="install the definitions of the version that the controller runs",
)
def _crd_missing(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    for kind in snapshot.objects:
        if snapshot.unread(kind) is Unread.ABSENT:
            yield f"this cluster knows no {kind.plural}.{kind.group}", f"needed: {kind.kind} of {kind.api_version}"


@error(
    "access-denied",
    cause="the credentials of this region's context may not do what a delivery has to do",
    remediation="bind them to the Role that `tidegate rollout render` writes",
)
def _access_denied(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    if denied := snapshot.denied:
        what = f"{len(denied)} of {len(snapshot.target.rights)} rights are missing in namespace {snapshot.namespace}"
        yield what, *(f"may not {right}" for right in denied)


TOLERATED_SKEW = timedelta(seconds=5)
"""Less than a scrape interval; the Date header itself is in whole seconds."""


@warning(
    "clock-skew",
    cause="this machine's clock and the API server's differ: windows of evidence and deadlines are off by as much",
    remediation="let both follow one time server",
)
def _clock_skew(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    skew = snapshot.skew
    if skew is not None and abs(skew) > TOLERATED_SKEW:
        which = "ahead of" if skew > timedelta() else "behind"
        seconds = abs(skew).total_seconds()
        yield f"the API server's clock is {seconds:.0f} s {which} this machine's", "its Date header"


@warning(
    "admission-differs",
    cause="RBAC says which kinds tidegate may write and not what is in them; without the policies of this spec and "
    "trust file, whoever has its token can run any pod of the namespace",
    remediation="as an administrator, apply `tidegate rollout render --part setup`; it needs Kubernetes 1.30",
)
def _admission_differs(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    kinds = [kind for kind in (ADMISSION_POLICIES, ADMISSION_BINDINGS) if snapshot.unread(kind) != Unread.FORBIDDEN]
    wanted = [(kind, each) for kind in kinds for each in snapshot.target.rendered(kind)]
    found = {said(each): _difference(each["spec"], snapshot.named(kind, name_of(each))) for kind, each in wanted}
    if wrong := {name: why for name, why in found.items() if why}:
        what = f"{len(wrong)} of {len(wanted)} objects that hold tidegate to its own are missing or differ"
        yield what, *(f"{name} {why}" for name, why in wrong.items())


def _difference(wanted: Json, live: Json | None) -> str:
    """Fields that are not as rendered, with what narrows a policy or a binding; empty when there are none."""
    if live is None:
        return "is not there"
    spec: Json = at(live, "spec", default={})
    fields = [name for name in {**wanted, **spec} if not _covers(wanted.get(name), spec.get(name))]
    if at(spec, "matchConstraints", "excludeResourceRules"):
        fields.append("matchConstraints.excludeResourceRules")
    return f"differs in {', '.join(fields)}" if fields else ""


def _covers(wanted: Any, live: Any) -> bool:
    """Whether all that is wanted is so; a server adds fields with their defaults."""
    if isinstance(wanted, Mapping):
        return isinstance(live, Mapping) and all(_covers(part, live.get(key)) for key, part in wanted.items())
    if isinstance(wanted, list):
        same_length = isinstance(live, list) and len(wanted) == len(live)
        return same_length and all(map(_covers, wanted, live))
    return bool(wanted == live)


CHECKS = (_not_ours, _crd_missing, _access_denied, _clock_skew, _admission_differs)
