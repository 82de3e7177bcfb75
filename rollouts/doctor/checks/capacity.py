"""Whether there is room for a second version: a quota that allows it, and nodes that take its pods."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from rollouts.argo.model import POD_TEMPLATE_HASH as HASH
from rollouts.doctor.checks.pods import own_pods
from rollouts.doctor.model import Ailment, Finding, Severity, Snapshot
from rollouts.doctor.objects import at, condition, is_ready, labels_of, said
from rollouts.doctor.placing import Fit, fit
from rollouts.doctor.quantity import amount, requested, spelled
from rollouts.doctor.strategy import canary, pods_wanted, replicas, routers, template
from rollouts.kube.model import Json
from rollouts.kube.resources import (
    NODES,
    RESOURCE_QUOTAS,
)

QUOTA_TOO_SMALL = Ailment(
    code="quota-too-small",
    severity=Severity.ERROR,
    cause="the namespace's quota has no room for a second version beside the first: the canary's pods are never made, "
    "and only the replica set's events say so",
    cure="raise the quota, or lower the replicas that both versions have together",
)
UNSCHEDULABLE = Ailment(
    code="pods-unschedulable",
    severity=Severity.ERROR,
    cause="the scheduler finds no node for pods of this Rollout",
    cure="free or add nodes of the kind that its words name",
)
TAINT_NOT_TOLERATED = Ailment(
    code="taint-not-tolerated",
    severity=Severity.ERROR,
    cause="every node that would do has a taint that the pods do not tolerate; GPU nodes have one by habit",
    cure="add the toleration to the pod template",
)
NO_SUCH_NODES = Ailment(
    code="no-such-nodes",
    severity=Severity.ERROR,
    cause="no node has the labels that the pod template asks for",
    cure="correct nodeSelector or affinity, or bring nodes of that kind",
)
NODES_TOO_SMALL = Ailment(
    code="nodes-too-small",
    severity=Severity.ERROR,
    cause="no node is large enough for one pod, were it empty: it asks for more GPUs or memory than a node has",
    cure="use larger nodes, or split the model over fewer GPUs a pod",
)
AILMENTS = (QUOTA_TOO_SMALL, UNSCHEDULABLE, TAINT_NOT_TOLERATED, NO_SUCH_NODES, NODES_TOO_SMALL)

_OF_FIT = {Fit.LABELS: NO_SUCH_NODES, Fit.SIZE: NODES_TOO_SMALL, Fit.TAINTS: TAINT_NOT_TOLERATED}


def quotas(snapshot: Snapshot) -> Iterator[Finding]:
    """Every quota has room for the pods that a delivery adds."""
    rollout = snapshot.rollout
    pod = template(snapshot, rollout) if rollout else {}
    if rollout is None or not pod:
        return
    both = {at(rollout, "status", "currentPodHash"), at(rollout, "status", "stableRS")}
    more = _most(rollout) - sum(labels_of(one).get(HASH) in both for one in own_pods(snapshot))
    if more <= 0:
        return
    needs = {name: number * more for name, number in requested(pod).items()} | {"pods": Decimal(more)}
    for quota in snapshot.all(RESOURCE_QUOTAS):
        for key, limit in at(quota, "status", "hard", default={}).items():
            need = needs.get(key.removeprefix("requests."), Decimal(0))
            used = amount(at(quota, "status", "used", key, default="0"))
            if need > amount(limit) - used:
                yield QUOTA_TOO_SMALL.found(
                    f"{said(quota)} has no room for {more} more pods of {said(rollout)}",
                    f"{key}: {limit} allowed, {spelled(used)} used, {spelled(need)} more needed",
                )


def nodes(snapshot: Snapshot) -> Iterator[Finding]:
    """Some node takes the newest pods; pods of the same template that run already are proof of it."""
    rollout = snapshot.rollout
    if rollout is None:
        return
    newest = at(rollout, "status", "currentPodHash")
    mine = [pod for pod in own_pods(snapshot) if labels_of(pod).get(HASH) == newest]
    waiting = [pod for pod in mine if _reason(pod) == "Unschedulable"]
    pod = template(snapshot, rollout)
    known = snapshot.all(NODES)
    proven = any(is_ready(one) for one in mine) and not waiting
    if known and pod and not proven:
        best, evidence = fit(pod, known)
        if best in _OF_FIT:
            yield _OF_FIT[best].found(f"no node takes the pods of {said(rollout)}", *evidence)
            return
    if waiting:
        found = condition(waiting[0], "PodScheduled") or {}
        what = f"{len(waiting)} pods of {said(rollout)} wait for a node"
        yield UNSCHEDULABLE.found(what, f"{said(waiting[0])}: {found.get('message', 'no message')}")


def _most(rollout: Json) -> int:
    """How many pods there are at the height of a delivery.

    With traffic routing, and in blue-green, both versions at their full size, as `promote --full` brings the new one
    up before the old goes; without, `maxSurge` more than wanted.
    """
    wanted = replicas(rollout)
    if at(canary(rollout), "dynamicStableScale"):
        return wanted + 1
    if routers(rollout) or at(rollout, "spec", "strategy", "blueGreen"):
        return 2 * wanted
    return wanted + pods_wanted(at(canary(rollout), "maxSurge"), wanted, default=-(-wanted // 4))


def _reason(pod: Json) -> str:
    found = condition(pod, "PodScheduled")
    return str(at(found, "reason", default="")) if found and found.get("status") == "False" else ""


CHECKS = (quotas, nodes)
