"""Whether the Services of stable and canary select the pods of stable and canary, and nobody else's."""

from __future__ import annotations

from collections.abc import Iterator

from rollouts.doctor.model import Check, Finding, Severity, Snapshot, of_rollout
from rollouts.doctor.strategy import in_progress, lags, services, template
from rollouts.kube.objects import Labels, at, labels_of, name_of, owned_by, said, selects
from rollouts.kube.resources import PODS, REPLICA_SETS, ROLLOUTS, SERVICES
from tidegate.core.model import Json
from tidegate.core.names import POD_TEMPLATE_HASH as HASH

SERVICE_MISSING = Check(
    code="service-missing",
    severity=Severity.ERROR,
    cause="the Rollout names a Service that is not there; the controller marks it InvalidSpec and does nothing",
    remediation="create the Service, or correct the name in the Rollout's strategy",
)
SERVICES_THE_SAME = Check(
    code="services-the-same",
    severity=Severity.ERROR,
    cause="stable and canary are one Service: a weight moves nothing, and evidence of both is the same",
    remediation="give stable and canary a Service each",
)
SELECTOR_EMPTY = Check(
    code="selector-matches-nothing",
    severity=Severity.ERROR,
    cause="the Service selects labels that the pod template does not have: it has no endpoints, requests get 503",
    remediation="make the Service's selector a part of the pod template's labels",
)
SELECTOR_TOO_WIDE = Check(
    code="selector-too-wide",
    severity=Severity.ERROR,
    cause="the Service selects pods of another workload too: its users are answered by what is not on trial",
    remediation="narrow the selector to labels that only this Rollout's pods have",
)
SELECTORS_OVERLAP = Check(
    code="selectors-overlap",
    severity=Severity.ERROR,
    cause="stable and canary select the same pods while two versions run: no weight separates them, "
    "and what is measured of one is of both",
    remediation="let the controller manage both selectors: remove what writes rollouts-pod-template-hash or undoes it",
)
SERVICE_SHARED = Check(
    code="service-shared",
    severity=Severity.ERROR,
    cause="two Rollouts manage one Service: each writes its own pod hash into the selector, in turns",
    remediation="give each Rollout Services of its own",
)


@of_rollout
def present(snapshot: Snapshot, rollout: Json) -> Iterator[Finding]:
    """Every Service that the Rollout names is there, once."""
    if snapshot.unread(SERVICES):
        return
    named = services(rollout)
    for field, name in named.items():
        if snapshot.named(SERVICES, name) is None:
            yield SERVICE_MISSING.found(f"there is no Service {name}", f"{said(rollout)}: {field}: {name}")
    if len(named) > len(set(named.values())):
        fields = ", ".join(f"{field}: {name}" for field, name in named.items())
        yield SERVICES_THE_SAME.found(f"{said(rollout)} has one Service for both versions", fields)


@of_rollout
def selecting(snapshot: Snapshot, rollout: Json) -> Iterator[Finding]:
    """Each selects this Rollout's pods, and only these."""
    labels = at(template(snapshot, rollout), "metadata", "labels")
    for service in _managed(snapshot, rollout):
        selector = _own_part(service)
        if labels is not None and not selects(selector, labels):
            yield SELECTOR_EMPTY.found(
                f"{said(service)} selects no pod of {said(rollout)}",
                f"selector: {_written(selector)}",
                f"labels of the pod template: {_written(labels)}",
            )
        elif foreign_objects := [name_of(pod) for pod in _foreign_objects(snapshot, rollout) if _selects(service, pod)]:
            yield SELECTOR_TOO_WIDE.found(
                f"{said(service)} selects pods that are not of {said(rollout)}",
                f"selector: {_written(at(service, 'spec', 'selector', default={}))}",
                f"also selected: {', '.join(sorted(foreign_objects)[:3])}",
            )


@of_rollout
def apart(snapshot: Snapshot, rollout: Json) -> Iterator[Finding]:
    """While two versions run, the two selectors differ in the pod hash. Steady, both rightly select the same pods."""
    if not in_progress(rollout) or lags(rollout):
        return
    pair = _managed(snapshot, rollout)
    if len(pair) < 2 or _settling(snapshot, rollout):
        return
    hashes = {name_of(service): at(service, "spec", "selector", HASH) for service in pair}
    if len(set(hashes.values())) < 2 or None in hashes.values():
        yield SELECTORS_OVERLAP.found(
            f"{' and '.join(hashes)} select the same pods while two versions run",
            *(f"Service {name}: {HASH}: {value or 'not set'}" for name, value in hashes.items()),
        )


@of_rollout
def unshared(snapshot: Snapshot, rollout: Json) -> Iterator[Finding]:
    """No other Rollout names the same Service."""
    mine = set(services(rollout).values())
    for other in snapshot.all(ROLLOUTS):
        both = mine & set(services(other).values())
        if name_of(other) != snapshot.delivery and both:
            what = f"{said(rollout)} and {said(other)} manage the same Service"
            yield SERVICE_SHARED.found(what, f"Service {', '.join(sorted(both))}")


def _managed(snapshot: Snapshot, rollout: Json) -> list[Json]:
    names = dict.fromkeys(services(rollout).values())
    return [service for name in names if (service := snapshot.named(SERVICES, name))]


def _selects(service: Json, pod: Json) -> bool:
    """With the controller's part of the selector, which no other workload's pods have."""
    return selects(at(service, "spec", "selector", default={}), labels_of(pod))


def _own_part(service: Json) -> Labels:
    """The selector without what the controller adds to it."""
    return {key: value for key, value in at(service, "spec", "selector", default={}).items() if key != HASH}


def _foreign_objects(snapshot: Snapshot, rollout: Json) -> Iterator[Json]:
    """Pods of the namespace that no replica set of the Rollout controls."""
    mine = [replica_set for replica_set in snapshot.all(REPLICA_SETS) if owned_by(replica_set, rollout)]
    for pod in snapshot.all(PODS):
        if not any(owned_by(pod, replica_set) for replica_set in mine):
            yield pod


def _settling(snapshot: Snapshot, rollout: Json) -> bool:
    """Whether the canary has no pods yet: only then does the controller leave its Service where it was.

    As `ensureSVCTargets` of Argo Rollouts, which waits for a replica set to be available.
    """
    current = at(rollout, "status", "currentPodHash")
    for replica_set in snapshot.all(REPLICA_SETS):
        if labels_of(replica_set).get(HASH) == current and owned_by(replica_set, rollout):
            return not at(replica_set, "status", "availableReplicas")
    return True


def _written(labels: Labels) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items())) or "none"


CHECKS = (
    SERVICE_MISSING,
    SERVICES_THE_SAME,
    SELECTOR_EMPTY,
    SELECTOR_TOO_WIDE,
    SELECTORS_OVERLAP,
    SERVICE_SHARED,
)
"""In the order of docs/reference/doctor.md."""

INSPECTIONS = (
    present,
    selecting,
    apart,
    unshared,
)
