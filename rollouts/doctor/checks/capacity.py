"""Whether there is room for a second version: a quota that allows it, and nodes that take its pods."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

from rollouts.argo.model import POD_TEMPLATE_HASH as HASH
from rollouts.doctor.checking import of_rollout
from rollouts.doctor.checks.pods import own_pods
from rollouts.doctor.model import Ailment, Finding, Severity, Snapshot
from rollouts.doctor.objects import at, condition, labels_of, said, time_at
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

NODE_COMES_WITHIN = timedelta(minutes=10)
"""A node that Karpenter or an autoscaler buys is there in a few minutes, with its GPU's driver."""

_OF_FIT = {Fit.LABELS: NO_SUCH_NODES, Fit.SIZE: NODES_TOO_SMALL, Fit.TAINTS: TAINT_NOT_TOLERATED}


@of_rollout
def quotas(snapshot: Snapshot, rollout: Json) -> Iterator[Finding]:
    """Every quota has room for the pods that a delivery adds."""
    pod = template(snapshot, rollout)
    if not pod:
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


@of_rollout
def nodes(snapshot: Snapshot, rollout: Json) -> Iterator[Finding]:
    """No pod of the newest version waits for a node for longer than it takes to bring one."""
    newest = at(rollout, "status", "currentPodHash")
    waiting = [pod for pod in own_pods(snapshot) if labels_of(pod).get(HASH) == newest and _waits(snapshot, pod)]
    if not waiting:
        return
    best, evidence = fit(template(snapshot, rollout), snapshot.all(NODES))
    if best in _OF_FIT:
        yield _OF_FIT[best].found(f"no node takes the pods of {said(rollout)}", *evidence)
        return
    message = at(condition(waiting[0], "PodScheduled"), "message", default="no message")
    what = f"{len(waiting)} pods of {said(rollout)} wait for a node"
    yield UNSCHEDULABLE.found(what, f"{said(waiting[0])}: {message}")


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


def _waits(snapshot: Snapshot, pod: Json) -> bool:
    found = condition(pod, "PodScheduled")
    if found is None or found.get("status") != "False" or found.get("reason") != "Unschedulable":
        return False
    since = time_at(found, "lastTransitionTime")
    return since is None or snapshot.now - since > NODE_COMES_WITHIN


CHECKS = (quotas, nodes)
