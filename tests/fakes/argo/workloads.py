"""What Kubernetes does with pods: made for ReplicaSets and Deployments, placed on nodes, started, ready in their time.

Kubernetes: `pkg/controller/replicaset/replica_set.go` (`manageReplicas`), `replica_set_utils.go` (`calculateStatus`),
`pkg/controller/controller_utils.go` (`ActivePodsWithRanks`), `pkg/controller/deployment`; the scheduler (nothing is
preempted; whether an empty node would take a pod is tidegate's own answer); the kubelet's container states and pod
conditions. A cluster without Node objects has room for everything, a deleted pod is gone at once, and a Deployment's
new template replaces the old pods at once.
"""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal

from fakes.argo.objects import ReplicaSet, moment_of, reference_to, safe_hash, stamp
from fakes.argo.world import World
from fakes.kube.refusal import Refusal

from rollouts.kube.objects import misfits, parse_quantity, resource_requests
from rollouts.kube.resources import NODES, PODS, REPLICA_SETS
from tidegate.core.model import Json


def place(world: World, pod: Json) -> tuple[str, str]:
    """The first node by name that takes it, or none and the scheduler's reason."""
    nodes = world.everywhere(NODES)
    if not nodes:
        return "simulated-node", ""
    placed = [one for one in world.everywhere(PODS) if one["spec"].get("nodeName")]
    reasons: Counter[str] = Counter()
    for node in nodes:
        unfit = "node(s) didn't match Pod's labels, size or taints" if misfits(pod, node) else ""
        why = _shortage(node, pod, placed) or unfit
        if not why:
            return str(node["metadata"]["name"]), ""
        reasons[why] += 1
    texts = ", ".join(f"{count} {why}" for why, count in sorted(reasons.items()))
    return "", f"0/{len(nodes)} nodes are available: {texts}."


def _shortage(node: Json, pod: Json, placed: list[Json]) -> str:
    allocatable = {"pods": "110"} | node.get("status", {}).get("allocatable", {})
    free = {name: parse_quantity(text) for name, text in allocatable.items()}
    for other in placed:
        if other["spec"]["nodeName"] == node["metadata"]["name"]:
            for name, amount in _requests_of(other).items():
                free[name] = free.get(name, Decimal(0)) - amount
    lacking = next((name for name, amount in _requests_of(pod).items() if amount > free.get(name, 0)), None)
    return f"Insufficient {lacking}" if lacking else ""


def _requests_of(pod: Json) -> dict[str, Decimal]:
    return {**resource_requests(pod), "pods": Decimal(1)}


VERSION = "tidegate.dev/version"


@dataclass
class Machines:
    """How pods fare: how long they take to be ready, and which never will be.

    A pod is named by its label `tidegate.dev/version` or by the image of one of its containers.
    """

    start_seconds: float = 20.0
    slow: dict[str, float] = field(default_factory=dict)
    """Seconds until ready of some versions or images."""
    image_pull_fails: set[str] = field(default_factory=set)
    crashes: set[str] = field(default_factory=set)
    last_words: dict[str, str] = field(default_factory=dict)
    """What containers of some versions or images log before they crash."""

    def seconds_for(self, pod: Json) -> float:
        return next((seconds for name, seconds in self.slow.items() if name in names_of(pod)), self.start_seconds)


def names_of(pod: Json) -> set[str]:
    """What a fault may call it."""
    spec = pod["spec"]
    images = {one["image"] for key in ("initContainers", "containers") for one in spec.get(key, ())}
    return images | {str(pod["metadata"].get("labels", {}).get(VERSION, ""))} - {""}


def is_ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def run_pod(world: World, pod: Json, machines: Machines) -> None:
    """Place it, start it, make it ready in its time; one that fails says why in the words of the kubelet."""
    names = names_of(pod)
    if not pod["spec"].get("nodeName"):
        node, why = place(world, pod)
        if not node:
            _wait_for_node(world, pod, why)
            return
        pod["spec"]["nodeName"] = node
        pod = world.update(pod)
    _start(world, pod, machines, names)


def _start(world: World, pod: Json, machines: Machines, names: set[str]) -> None:
    now = world.now()
    begun = (pod.get("status") or {}).get("startTime") or stamp(now)
    ready_at = moment_of(begun) + timedelta(seconds=machines.seconds_for(pod))
    if names & machines.image_pull_fails:
        text = f'Back-off pulling image "{pod["spec"]["containers"][0]["image"]}"'
        state: Json = {"waiting": {"reason": "ImagePullBackOff", "message": text}}
        _write(world, pod, "Pending", begun, state)
    elif names & machines.crashes:
        text = f"back-off 5m0s restarting failed container={pod['spec']['containers'][0]['name']}"
        state = {"waiting": {"reason": "CrashLoopBackOff", "message": text}}
        words = next((words for name, words in machines.last_words.items() if name in names), "")
        _write(world, pod, "Running", begun, state, last_words=words)
    else:
        if now < ready_at:
            world.wake(ready_at)
        _write(world, pod, "Running", begun, {"running": {"startedAt": begun}}, ready=now >= ready_at)


def _wait_for_node(world: World, pod: Json, why: str) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
    old = (pod.get("status") or {}).get("conditions", ())
    since = next((one["lastTransitionTime"] for one in old if one["type"] == "PodScheduled"), stamp(world.now()))
    world.report(pod, {"phase": "Pending", "conditions": [condition | {"lastTransitionTime": since}]})


def _write(
    world: World,
    pod: Json,
    phase: str,
    begun: str,
    state: Json,
    *,
    ready: bool = False,
    last_words: str = "",
) -> None:
    old = {one["type"]: one for one in (pod.get("status") or {}).get("conditions", ())}
    conditions = []
    for kind, true in (("PodScheduled", True), ("Initialized", True), ("ContainersReady", ready), ("Ready", ready)):
        value = str(true)
        known = kind in old and old[kind]["status"] == value
        since = old[kind]["lastTransitionTime"] if known else stamp(world.now())
        conditions.append({"type": kind, "status": value, "lastTransitionTime": since})
    crashed = state.get("waiting", {}).get("reason") == "CrashLoopBackOff"
    statuses = [
        {
            "name": one["name"],
            "image": one["image"],
            "imageID": "",
            "ready": ready,
            "started": ready,
            "restartCount": 5 if crashed else 0,
            "state": state,
            "lastState": {"terminated": _ended(one, last_words)} if crashed else {},
        }
        for one in pod["spec"]["containers"]
    ]
    status = {"phase": phase, "startTime": begun, "conditions": conditions, "containerStatuses": statuses}
    world.report(pod, status)


def _ended(container: Json, last_words: str) -> Json:
    """How it ended; the tail of its log only where the container asks for it (`terminationMessagePolicy`)."""
    told = container.get("terminationMessagePolicy") == "FallbackToLogsOnError" and last_words
    return {"exitCode": 1, "reason": "Error"} | ({"message": last_words} if told else {})


def reconcile_replica_set(world: World, body: Json, numbers: list[int]) -> None:
    """As many pods as desired; those that matter least go first. Then its status."""
    pods = world.owned(PODS, body)
    desired, failure = ReplicaSet(body).replicas, None
    for pod in sorted(pods, key=_worth)[: max(0, len(pods) - desired)]:
        world.delete(pod)
    for _ in range(desired - len(pods)):
        numbers[0] += 1
        try:
            world.create(_pod(body, numbers[0]))
        except Refusal as refusal:
            failure = str(refusal)
            break
    _write_status(world, body, failure)


def _pod(rs: Json, number: int) -> Json:
    template, name = copy.deepcopy(rs["spec"]["template"]), rs["metadata"]["name"]
    metadata = {
        key: template.get("metadata", {})[key]
        for key in ("labels", "annotations")
        if key in template.get("metadata", {})
    }
    metadata |= {
        "name": f"{name}-{safe_hash([rs['metadata']['uid'], number])[:5]}",
        "generateName": f"{name}-",
        "namespace": rs["metadata"]["namespace"],
        "ownerReferences": [reference_to(rs)],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": template["spec"],
        "status": {"phase": "Pending"},
    }


def _worth(pod: Json) -> tuple[bool, bool, float]:
    """Without a node before placed, not ready before ready, young before old."""
    age = -moment_of(pod["metadata"]["creationTimestamp"]).timestamp()
    return bool(pod["spec"].get("nodeName")), is_ready(pod), age


def _write_status(world: World, body: Json, failure: str | None) -> None:
    pods = world.owned(PODS, body)
    ready = sum(map(is_ready, pods))
    counts = {"readyReplicas": ready, "availableReplicas": ready}
    status: Json = {"replicas": len(pods), "observedGeneration": body["metadata"]["generation"]}
    status |= {"fullyLabeledReplicas": len(pods)} if pods else {}
    status |= {key: count for key, count in counts.items() if count}
    if failure is not None:
        old = next(iter(body.get("status", {}).get("conditions", ())), None)
        first = old["lastTransitionTime"] if old else stamp(world.now())
        why = {"reason": "FailedCreate", "message": failure, "lastTransitionTime": first}
        status["conditions"] = [{"type": "ReplicaFailure", "status": "True", **why}]
    world.report(body, status)


_HASH = "pod-template-hash"


def reconcile_deployment(world: World, body: Json) -> None:
    spec, metadata = body["spec"], body["metadata"]
    desired, name = int(spec.get("replicas", 1)), f"{metadata['name']}-{safe_hash(spec['template'])}"
    owned = [ReplicaSet(rs) for rs in world.owned(REPLICA_SETS, body)]
    for rs in owned:
        count = desired if rs.name == name else 0
        if rs.replicas != count:
            rs.body["spec"]["replicas"] = count
            rs.read(world.update(rs.body))
    if all(rs.name != name for rs in owned):
        owned.append(ReplicaSet(world.create(_replica_set(body, name, desired))))
    ready, available = sum(rs.ready for rs in owned), sum(rs.available for rs in owned)
    counts = {"replicas": sum(rs.actual for rs in owned), "readyReplicas": ready, "availableReplicas": available}
    counts["updatedReplicas"] = next(rs.actual for rs in owned if rs.name == name)
    status: Json = {"observedGeneration": metadata["generation"]} | {
        key: count for key, count in counts.items() if count
    }
    value = str(available >= desired)
    status["conditions"] = [{"type": "Available", "status": value, "reason": "MinimumReplicasAvailable"}]
    world.report(body, status)


def _replica_set(body: Json, name: str, count: int) -> Json:
    template = copy.deepcopy(body["spec"]["template"])
    label = {_HASH: name.rpartition("-")[2]}
    template["metadata"]["labels"] = template["metadata"].get("labels", {}) | label
    selector = {"matchLabels": body["spec"]["selector"].get("matchLabels", {}) | label}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": name,
            "namespace": body["metadata"]["namespace"],
            "labels": template["metadata"]["labels"],
            "ownerReferences": [reference_to(body)],
        },
        "spec": {"replicas": count, "selector": selector, "template": template},
    }
