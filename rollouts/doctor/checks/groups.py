"""Checks of engines over several nodes: LeaderWorkerSets have no Rollout and no controller of ours to ask."""

from __future__ import annotations

from collections.abc import Iterator

from rollouts.doctor.model import Check, Finding, Severity, Snapshot
from rollouts.kube.objects import at, labels_of, name_of, said
from rollouts.kube.pods import pod_problems
from rollouts.kube.resources import LEADER_WORKER_SETS, PODS
from rollouts.manifests.conventions import SET_NAME
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY

NOT_READY = Check(
    code="groups-not-ready",
    severity=Severity.ERROR,
    cause="not all engines of a LeaderWorkerSet are ready: a pod of the group has no node, does not start, or ended, "
    "after which all of the group is made again; or the controller of LeaderWorkerSets is not there",
    remediation="do what the pods' own words say; without pods, look at the controller in lws-system",
)
LESS_SEEN = Check(
    code="groups-less-seen",
    severity=Severity.NOTE,
    cause="with `fleet.multi_node` the doctor looks at definitions, rights, LeaderWorkerSets, the guard and "
    "Prometheus; its checks of Services, routes, network policies and budgets go by a Rollout",
    remediation="`tidegate status` reads Services and route; compare the rest with `tidegate rollout diff`",
)


def ready(snapshot: Snapshot) -> Iterator[Finding]:
    """Every set of the delivery has all its engines."""
    for each in snapshot.all(LEADER_WORKER_SETS):
        if labels_of(each).get(DELIVERY) != snapshot.delivery or each["metadata"].get("deletionTimestamp"):
            continue
        wanted, there = (
            int(at(each, "spec", "replicas", default=1)),
            int(at(each, "status", "readyReplicas", default=0)),
        )
        if there < wanted:
            yield NOT_READY.found(f"{said(each)} has {there} of {wanted} engines ready", *_why(snapshot, each))


def less_seen(snapshot: Snapshot) -> Iterator[Finding]:
    """Said once, so that nobody takes silence for health."""
    yield LESS_SEEN.found(f"engines of {snapshot.delivery} take several nodes each: some checks do not apply")


def _why(snapshot: Snapshot, found: Json) -> Iterator[str]:
    pods = [pod for pod in snapshot.all(PODS) if labels_of(pod).get(SET_NAME) == name_of(found)]
    if not pods:
        yield "it has no pods"
    elif problems := pod_problems(pods):
        yield problems


CHECKS = (
    NOT_READY,
    LESS_SEEN,
)
"""In the order of docs/reference/doctor.md."""

INSPECTIONS = (
    ready,
    less_seen,
)
