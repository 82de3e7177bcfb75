"""Replica sets of Kubernetes: as many pods as wished, and their counts.

Kubernetes: `pkg/controller/replicaset/replica_set.go` (`manageReplicas`), `replica_set_utils.go` (`calculateStatus`),
`pkg/controller/controller_utils.go` (`ActivePodsWithRanks`).
"""

from __future__ import annotations

import copy
from datetime import timedelta

from fakes.argo.objects import ReplicaSet, moment_of, reference_to, safe_hash, stamp
from fakes.argo.pods import is_available, is_ready, ready_since
from fakes.argo.world import World
from fakes.kube.refusal import Refusal

from rollouts.kube.model import Json
from rollouts.kube.resources import PODS


def reconcile_replica_set(world: World, body: Json, numbers: list[int]) -> None:
    """As many pods as wished; those that matter least go first. Then its status."""
    pods = world.index.owned(PODS, body)
    wished, failure = ReplicaSet(body).replicas, None
    for pod in sorted(pods, key=_worth)[: max(0, len(pods) - wished)]:
        world.delete(pod)
    for _ in range(wished - len(pods)):
        numbers[0] += 1
        try:
            pod = world.create(_pod(body, numbers[0]))
        except Refusal as refusal:
            failure = str(refusal)
            world.event(
                body, "FailedCreate", f"Error creating: {failure}", warning=True, source="replicaset-controller"
            )
            break
        text = f"Created pod: {pod['metadata']['name']}"
        world.event(body, "SuccessfulCreate", text, source="replicaset-controller")
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
    now, seconds = world.now(), int(body["spec"].get("minReadySeconds", 0))
    pods = world.index.owned(PODS, body)
    ready = [pod for pod in pods if is_ready(pod)]
    available = [pod for pod in ready if is_available(pod, seconds, now)]
    for at in sorted({since + timedelta(seconds=seconds) for pod in ready if (since := ready_since(pod)) is not None}):
        if now < at:
            world.wake(at)
    counts = {"readyReplicas": len(ready), "availableReplicas": len(available)}
    status: Json = {"replicas": len(pods), "observedGeneration": body["metadata"]["generation"]}
    status |= {"fullyLabeledReplicas": len(pods)} if pods else {}
    status |= {key: count for key, count in counts.items() if count}
    if failure is not None:
        old = next(iter(body.get("status", {}).get("conditions", ())), None)
        first = old["lastTransitionTime"] if old else stamp(now)
        why = {"reason": "FailedCreate", "message": failure, "lastTransitionTime": first}
        status["conditions"] = [{"type": "ReplicaFailure", "status": "True", **why}]
    world.report(body, status)
