"""Checks of pods: whether they are made, start, are counted right, and whether there is room for a second version."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

from rollouts.doctor.model import Check, Finding, Severity, Snapshot, of_rollout
from rollouts.doctor.strategy import ago, canary, pods_wanted, replicas, routers, template
from rollouts.kube.objects import (
    at,
    condition,
    container_states,
    containers_of,
    labels_of,
    matches,
    name_of,
    owned_by,
    said,
    time_at,
)
from rollouts.kube.pods import CRASH_LOOP, IMAGE_FAILURES
from rollouts.kube.resources import (
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
)
from rollouts.kube.scheduling import Fit, fit, format_quantity, parse_quantity, resource_requests
from rollouts.manifests.conventions import ENGINE, PORT_NAME
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY, REGION, VERSION
from tidegate.core.names import POD_TEMPLATE_HASH as HASH

IMAGE_NOT_PULLED = Check(
    code="image-not-pulled",
    severity=Severity.ERROR,
    cause="the node cannot pull the image: no such tag, no credentials for the registry, or no way to it",
    remediation=(
        "try the reference with `tidegate engine inspect`; check imagePullSecrets and the node's way to the registry"
    ),
)
PODS_REFUSED = Check(
    code="pods-refused",
    severity=Severity.ERROR,
    cause="the API server does not let the replica set make its pods: no service account or priority class of that "
    "name, a quota that is used up, or a policy that refuses them",
    remediation="apply the set-up part of `tidegate rollout render`, or mend what the message names",
)
POD_CRASHES = Check(
    code="pod-crashes",
    severity=Severity.ERROR,
    cause="the engine ends again and again: too little memory, wrong arguments, or a model that does not load",
    remediation="read the log of its last run: kubectl logs --previous",
)
KILLED_WHILE_LOADING = Check(
    code="startup-probe-missing",
    severity=Severity.ERROR,
    cause="a liveness probe without a startup probe kills an engine that still loads its model, "
    "which may take ten minutes and more",
    remediation="add a startup probe with periodSeconds times failureThreshold above the longest load",
)
NOT_ASKED_WHETHER_READY = Check(
    code="readiness-probe-missing",
    severity=Severity.ERROR,
    cause="without a readiness probe a pod counts as available, and gets users, before the model is loaded",
    remediation="add a readiness probe that fails until the engine answers",
)
DEADLINE_TOO_SHORT = Check(
    code="progress-deadline-too-short",
    severity=Severity.WARNING,
    cause="the Rollout is Degraded before an engine has had the time to start that its startup probe allows",
    remediation="set progressDeadlineSeconds above the startup probe's periodSeconds times failureThreshold",
)
EVICTION_BLOCKED = Check(
    code="budget-blocks",
    severity=Severity.WARNING,
    cause="the PodDisruptionBudget allows no eviction, ever: nodes cannot be drained, upgraded or consolidated",
    remediation="allow one pod to be away (maxUnavailable: 1), with two replicas or more",
)
BUDGETS_CLASH = Check(
    code="budgets-clash",
    severity=Severity.WARNING,
    cause="two PodDisruptionBudgets select one pod: the API server refuses every eviction of it",
    remediation="keep one of them",
)
NOT_LABELLED = Check(
    code="pods-not-labelled",
    severity=Severity.ERROR,
    cause="the pod template lacks labels that pod monitors and gates tell engines apart by: there will be no evidence",
    remediation="put tidegate.dev/delivery, tidegate.dev/region and tidegate.dev/version on the template "
    "(`tidegate rollout render` does)",
)
PORT_UNNAMED = Check(
    code="metrics-port-missing",
    severity=Severity.ERROR,
    cause="no container has a port named http, which the PodMonitor scrapes: there will be no evidence",
    remediation="name the engine's port http",
)

DEFAULT_DEADLINE = 600
"""progressDeadlineSeconds of a Rollout that does not say."""


@of_rollout
def made(snapshot: Snapshot, rollout: Json) -> Iterator[Finding]:
    """No replica set is kept from making its pods; nothing but its own condition and events says so."""
    for replica_set in snapshot.all(REPLICA_SETS):
        failed = condition(replica_set, "ReplicaFailure")
        if failed and failed.get("status") == "True" and owned_by(replica_set, rollout):
            what = f"{said(replica_set)} cannot make its pods"
            yield PODS_REFUSED.found(what, str(failed.get("message") or failed.get("reason")))


def starting(snapshot: Snapshot) -> Iterator[Finding]:
    """No pod of the Rollout waits for an image or ends again and again; one finding for each cause and image."""
    seen: set[tuple[str, str]] = set()
    for pod in own_pods(snapshot):
        for state in container_states(pod):
            waiting = at(state, "state", "waiting", default={})
            reason, image = str(waiting.get("reason", "")), str(state.get("image", ""))
            if (reason, image) in seen:
                continue
            if reason in IMAGE_FAILURES:
                seen |= {(other, image) for other in IMAGE_FAILURES}
                what = f"{said(pod)} waits for an image"
                yield IMAGE_NOT_PULLED.found(what, f"{reason}: {waiting.get('message') or image}")
            elif reason == CRASH_LOOP:
                seen.add((reason, image))
                yield POD_CRASHES.found(f"{said(pod)} crashes", *_last_end(snapshot, state))


@of_rollout
def probes(snapshot: Snapshot, rollout: Json) -> Iterator[Finding]:
    """An engine is given the time that it needs to load, and no users before."""
    for container in _engines(template(snapshot, rollout)):
        what = f"{said(rollout)}: container {container.get('name')}"
        if "readinessProbe" not in container:
            yield NOT_ASKED_WHETHER_READY.found(f"{what} has no readiness probe")
        if "livenessProbe" in container and "startupProbe" not in container:
            yield KILLED_WHILE_LOADING.found(
                f"{what} has a liveness probe and no startup probe",
                f"it is killed {_patience(container['livenessProbe'])} s after its start",
            )
        allowed = _patience(container.get("startupProbe", {}))
        deadline = int(at(rollout, "spec", "progressDeadlineSeconds", default=DEFAULT_DEADLINE))
        if "startupProbe" in container and allowed > deadline:
            yield DEADLINE_TOO_SHORT.found(
                f"{what} may take {allowed} s to start, the Rollout {deadline} s",
                f"progressDeadlineSeconds: {deadline}",
            )


@of_rollout
def evidence(snapshot: Snapshot, rollout: Json) -> Iterator[Finding]:
    """Pods of a delivery of ours can be scraped and told apart. Others' Rollouts have none of our labels."""
    if not _ours(rollout):
        return
    pod = template(snapshot, rollout)
    labels = at(pod, "metadata", "labels", default={})
    missing = [label for label in _LABELS if label not in labels]
    if missing:
        yield NOT_LABELLED.found(f"{said(rollout)}: its pods cannot be told apart", f"missing: {', '.join(missing)}")
    ports = [port.get("name") for one in containers_of(pod) for port in at(one, "ports", default=[])]
    if containers_of(pod) and PORT_NAME not in ports:
        yield PORT_UNNAMED.found(
            f"{said(rollout)}: nothing can scrape its pods", f"ports: {', '.join(map(str, ports)) or 'none'}"
        )


def budgets(snapshot: Snapshot) -> Iterator[Finding]:
    """Nodes can be drained."""
    mine = [pod for pod in own_pods(snapshot) if not at(pod, "metadata", "deletionTimestamp")]
    covering: dict[str, list[str]] = {}
    for budget in snapshot.all(POD_DISRUPTION_BUDGETS):
        covered = [name_of(pod) for pod in mine if matches(at(budget, "spec", "selector", default={}), labels_of(pod))]
        for name in covered:
            covering.setdefault(name, []).append(name_of(budget))
        healthy = int(at(budget, "status", "desiredHealthy", default=0))
        expected = int(at(budget, "status", "expectedPods", default=0))
        if covered and expected and healthy >= expected:
            yield EVICTION_BLOCKED.found(
                f"{said(budget)} allows no eviction of its {expected} pods",
                f"{_allowance(budget)}: {healthy} of {expected} must be healthy",
            )
    if clash := next((names for names in covering.values() if len(names) > 1), None):
        yield BUDGETS_CLASH.found("several PodDisruptionBudgets select the same pods", ", ".join(clash))


def own_pods(snapshot: Snapshot) -> list[Json]:
    """The pods of the Rollout's replica sets."""
    rollout = snapshot.rollout
    if rollout is None:
        return []
    mine = [one for one in snapshot.all(REPLICA_SETS) if owned_by(one, rollout)]
    return [pod for pod in snapshot.all(PODS) if any(owned_by(pod, one) for one in mine)]


_LABELS = (DELIVERY, REGION, VERSION)


def _engines(pod: Json) -> list[Json]:
    """The containers that load a model: those with GPUs, else the one of our name, else the first."""
    found = containers_of(pod)
    with_gpus = [one for one in found if any("gpu" in name for name in at(one, "resources", "limits", default={}))]
    named = [one for one in found if one.get("name") == ENGINE]
    return with_gpus or named or found[:1]


def _ours(rollout: Json) -> bool:
    """Whether any of our labels is on it, or our field manager has written it."""
    managers = {entry.get("manager") for entry in at(rollout, "metadata", "managedFields", default=[])}
    return "tidegate" in managers or any(
        label.startswith("tidegate.dev/")
        for label in (*labels_of(rollout), *at(rollout, "spec", "template", "metadata", "labels", default={}))
    )


def _patience(probe: Json) -> int:
    """Seconds until a probe that always fails has its way; defaults are those of Kubernetes."""
    return int(probe.get("initialDelaySeconds", 0)) + int(probe.get("periodSeconds", 10)) * int(
        probe.get("failureThreshold", 3)
    )


def _last_end(snapshot: Snapshot, state: Json) -> Iterator[str]:
    ended = at(state, "lastState", "terminated", default={})
    at_time = time_at(ended, "finishedAt")
    when = f", {ago(at_time, snapshot.now)} ago" if at_time else ""
    yield (
        f"container {state.get('name')}: {state.get('restartCount', 0)} restarts, last end: "
        f"{ended.get('reason', 'unknown')}, exit code {ended.get('exitCode', 'unknown')}{when}"
    )
    if ended.get("message"):
        yield str(ended["message"]).strip().splitlines()[-1]


def _allowance(budget: Json) -> str:
    spec = at(budget, "spec", default={})
    return ", ".join(f"{key}: {spec[key]}" for key in ("minAvailable", "maxUnavailable") if key in spec)


QUOTA_TOO_SMALL = Check(
    code="quota-too-small",
    severity=Severity.ERROR,
    cause="the namespace's quota has no room for a second version next to the first: the canary's pods are never made, "
    "and only the replica set's events say so",
    remediation="raise the quota, or lower the replicas that both versions have together",
)
UNSCHEDULABLE = Check(
    code="pods-unschedulable",
    severity=Severity.ERROR,
    cause="the scheduler finds no node for pods of this Rollout",
    remediation="free or add nodes of the kind that its words name",
)
TAINT_NOT_TOLERATED = Check(
    code="taint-not-tolerated",
    severity=Severity.ERROR,
    cause="every node that would do has a taint that the pods do not tolerate; GPU nodes have one by habit",
    remediation="add the toleration to the pod template",
)
NO_SUCH_NODES = Check(
    code="no-such-nodes",
    severity=Severity.ERROR,
    cause="no node has the labels that the pod template asks for",
    remediation="correct nodeSelector or affinity, or bring nodes of that kind",
)
NODES_TOO_SMALL = Check(
    code="nodes-too-small",
    severity=Severity.ERROR,
    cause="no node is large enough for one pod, were it empty: it asks for more GPUs or memory than a node has",
    remediation="use larger nodes, or split the model over fewer GPUs a pod",
)

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
    needs = {name: number * more for name, number in resource_requests(pod).items()} | {"pods": Decimal(more)}
    for quota in snapshot.all(RESOURCE_QUOTAS):
        for key, limit in at(quota, "status", "hard", default={}).items():
            need = needs.get(key.removeprefix("requests."), Decimal(0))
            used = parse_quantity(at(quota, "status", "used", key, default="0"))
            if need > parse_quantity(limit) - used:
                yield QUOTA_TOO_SMALL.found(
                    f"{said(quota)} has no room for {more} more pods of {said(rollout)}",
                    f"{key}: {limit} allowed, {format_quantity(used)} used, {format_quantity(need)} more needed",
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

    With traffic routing both versions at their full size, as `promote --full` brings the new one
    up before the old goes; without, `maxSurge` more than wanted.
    """
    wanted = replicas(rollout)
    if at(canary(rollout), "dynamicStableScale"):
        return wanted + 1
    if routers(rollout):
        return 2 * wanted
    return wanted + pods_wanted(at(canary(rollout), "maxSurge"), wanted, default=-(-wanted // 4))


def _waits(snapshot: Snapshot, pod: Json) -> bool:
    found = condition(pod, "PodScheduled")
    if found is None or found.get("status") != "False" or found.get("reason") != "Unschedulable":
        return False
    since = time_at(found, "lastTransitionTime")
    return since is None or snapshot.now - since > NODE_COMES_WITHIN


CHECKS = (
    PODS_REFUSED,
    IMAGE_NOT_PULLED,
    POD_CRASHES,
    KILLED_WHILE_LOADING,
    NOT_ASKED_WHETHER_READY,
    DEADLINE_TOO_SHORT,
    EVICTION_BLOCKED,
    BUDGETS_CLASH,
    NOT_LABELLED,
    PORT_UNNAMED,
    QUOTA_TOO_SMALL,
    UNSCHEDULABLE,
    TAINT_NOT_TOLERATED,
    NO_SUCH_NODES,
    NODES_TOO_SMALL,
)
"""In the order of docs/reference/doctor.md."""

INSPECTIONS = (
    made,
    starting,
    probes,
    evidence,
    budgets,
    quotas,
    nodes,
)
