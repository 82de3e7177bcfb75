"""What Kubernetes does with pods: made for ReplicaSets, started, ready in their time.

Kubernetes: `pkg/controller/replicaset/replica_set.go` (`manageReplicas`), `replica_set_utils.go` (`calculateStatus`),
`pkg/controller/controller_utils.go` (`ActivePodsWithRanks`); the kubelet's container states and pod conditions. A
cluster has room for everything, and a deleted pod is gone at once.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from datetime import timedelta

from fakes.argo.objects import ReplicaSet, moment_of, reference_to, safe_hash, stamp
from fakes.argo.world import World
from fakes.kube.refusal import Refusal

from rollouts.kube.resources import PODS
from tidegate.core.model import Json

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
    """Start it, make it ready in its time; one that fails says why in the words of the kubelet."""
    names = names_of(pod)
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


def _worth(pod: Json) -> tuple[bool, float]:
    """Not ready before ready, young before old."""
    age = -moment_of(pod["metadata"]["creationTimestamp"]).timestamp()
    return is_ready(pod), age


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
