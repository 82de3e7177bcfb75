"""Whether pods start, and can be told apart, measured and moved."""

from __future__ import annotations

from collections.abc import Iterator

from rollouts.doctor.checking import of_rollout
from rollouts.doctor.model import Ailment, Finding, Severity, Snapshot
from rollouts.doctor.objects import (
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
from rollouts.doctor.strategy import ago, template
from rollouts.kube.model import Json
from rollouts.kube.resources import POD_DISRUPTION_BUDGETS, PODS, REPLICA_SETS
from rollouts.manifests.conventions import DELIVERY, ENGINE, PORT_NAME, REGION, VERSION

IMAGE_NOT_PULLED = Ailment(
    code="image-not-pulled",
    severity=Severity.ERROR,
    cause="the node cannot pull the image: no such tag, no credentials for the registry, or no way to it",
    cure="try the reference with `tidegate engine inspect`; check imagePullSecrets and the node's way to the registry",
)
PODS_REFUSED = Ailment(
    code="pods-refused",
    severity=Severity.ERROR,
    cause="the API server does not let the replica set make its pods: no service account or priority class of that "
    "name, a quota that is used up, or a policy that refuses them",
    cure="apply the set-up part of `tidegate rollout render`, or mend what the message names",
)
POD_CRASHES = Ailment(
    code="pod-crashes",
    severity=Severity.ERROR,
    cause="the engine ends again and again: too little memory, wrong arguments, or a model that does not load",
    cure="read the log of its last run: kubectl logs --previous",
)
KILLED_WHILE_LOADING = Ailment(
    code="startup-probe-missing",
    severity=Severity.ERROR,
    cause="a liveness probe without a startup probe kills an engine that still loads its model, "
    "which may take ten minutes and more",
    cure="add a startup probe with periodSeconds times failureThreshold above the longest load",
)
NOT_ASKED_WHETHER_READY = Ailment(
    code="readiness-probe-missing",
    severity=Severity.ERROR,
    cause="without a readiness probe a pod counts as available, and gets users, before the model is loaded",
    cure="add a readiness probe that fails until the engine answers",
)
DEADLINE_TOO_SHORT = Ailment(
    code="progress-deadline-too-short",
    severity=Severity.WARNING,
    cause="the Rollout is Degraded before an engine has had the time to start that its startup probe allows",
    cure="set progressDeadlineSeconds above the startup probe's periodSeconds times failureThreshold",
)
EVICTION_BLOCKED = Ailment(
    code="budget-blocks",
    severity=Severity.WARNING,
    cause="the PodDisruptionBudget allows no eviction, ever: nodes cannot be drained, upgraded or consolidated",
    cure="allow one pod to be away (maxUnavailable: 1), with two replicas or more",
)
BUDGETS_CLASH = Ailment(
    code="budgets-clash",
    severity=Severity.WARNING,
    cause="two PodDisruptionBudgets select one pod: the API server refuses every eviction of it",
    cure="keep one of them",
)
NOT_LABELLED = Ailment(
    code="pods-not-labelled",
    severity=Severity.ERROR,
    cause="the pod template lacks labels that pod monitors and gates tell engines apart by: there will be no evidence",
    cure="put tidegate.dev/delivery, tidegate.dev/region and tidegate.dev/version on the template "
    "(`tidegate rollout render` does)",
)
PORT_UNNAMED = Ailment(
    code="metrics-port-missing",
    severity=Severity.ERROR,
    cause="no container has a port named http, which the PodMonitor scrapes: there will be no evidence",
    cure="name the engine's port http",
)
AILMENTS = (
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
)

_NO_IMAGE = {"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"}
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
            if reason in _NO_IMAGE:
                seen |= {(other, image) for other in _NO_IMAGE}
                what = f"{said(pod)} waits for an image"
                yield IMAGE_NOT_PULLED.found(what, f"{reason}: {waiting.get('message') or image}")
            elif reason == "CrashLoopBackOff":
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


CHECKS = (made, starting, probes, evidence, budgets)
