"""Pods: placed on nodes, started or not, ready in their time.

Kubernetes: the kubelet's container states and pod conditions. A deleted pod is gone at once: there is no grace period
here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from fakes.argo.objects import moment_of, stamp
from fakes.argo.scheduling import place
from fakes.argo.world import World

from rollouts.kube.model import Json

VERSION = "tidegate.dev/version"


@dataclass
class Machines:
    """How pods fare: how long they take to be ready, and which never will be.

    A pod is named by its label `tidegate.dev/version` or by the image of one of its containers.
    """

    start_seconds: float = 20.0
    slow: dict[str, float] = field(default_factory=dict)
    """Seconds until ready of some versions or images."""
    unschedulable: set[str] = field(default_factory=set)
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
    return ready_since(pod) is not None


def is_available(pod: Json, min_ready_seconds: int, now: datetime) -> bool:
    """Ready for at least that long."""
    since = ready_since(pod)
    return since is not None and now >= since + timedelta(seconds=min_ready_seconds)


def run_pod(world: World, pod: Json, machines: Machines) -> None:
    """Place it, start it, make it ready in its time; one that fails says why in the words of the kubelet."""
    names = names_of(pod)
    if not pod["spec"].get("nodeName"):
        lacks = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu." if names & machines.unschedulable else ""
        node, why = ("", lacks) if lacks else place(world, pod)
        if not node:
            _wait_for_node(world, pod, why)
            return
        pod["spec"]["nodeName"] = node
        pod = world.update(pod)
        text = f"Successfully assigned {pod['metadata']['namespace']}/{pod['metadata']['name']} to {node}"
        world.event(pod, "Scheduled", text, source="default-scheduler")
    _start(world, pod, machines, names)


def _start(world: World, pod: Json, machines: Machines, names: set[str]) -> None:
    now = world.now()
    begun = (pod.get("status") or {}).get("startTime") or stamp(now)
    ready_at = moment_of(begun) + timedelta(seconds=machines.seconds_for(pod))
    if names & machines.image_pull_fails:
        text = f'Back-off pulling image "{pod["spec"]["containers"][0]["image"]}"'
        state: Json = {"waiting": {"reason": "ImagePullBackOff", "message": text}}
        _write(world, pod, "Pending", begun, state, event=("Failed", text))
    elif names & machines.crashes:
        text = f"back-off 5m0s restarting failed container={pod['spec']['containers'][0]['name']}"
        state = {"waiting": {"reason": "CrashLoopBackOff", "message": text}}
        words = next((words for name, words in machines.last_words.items() if name in names), "")
        _write(world, pod, "Running", begun, state, event=("BackOff", text), last_words=words)
    else:
        if now < ready_at:
            world.wake(ready_at)
        _write(world, pod, "Running", begun, {"running": {"startedAt": begun}}, ready=now >= ready_at)


def _wait_for_node(world: World, pod: Json, why: str) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
    old = (pod.get("status") or {}).get("conditions", ())
    since = next((one["lastTransitionTime"] for one in old if one["type"] == "PodScheduled"), stamp(world.now()))
    if not old or old[0].get("message") != why:
        world.event(pod, "FailedScheduling", why, warning=True, source="default-scheduler")
    world.report(pod, {"phase": "Pending", "conditions": [condition | {"lastTransitionTime": since}]})


def _write(
    world: World,
    pod: Json,
    phase: str,
    begun: str,
    state: Json,
    *,
    ready: bool = False,
    event: tuple[str, str] | None = None,
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
    if event is not None and (pod.get("status") or {}).get("containerStatuses") != statuses:
        world.event(pod, *event, warning=True, source="kubelet")
    world.report(pod, status)


def _ended(container: Json, last_words: str) -> Json:
    """How it ended; the tail of its log only where the container asks for it (`terminationMessagePolicy`)."""
    told = container.get("terminationMessagePolicy") == "FallbackToLogsOnError" and last_words
    return {"exitCode": 1, "reason": "Error"} | ({"message": last_words} if told else {})


def ready_since(pod: Json) -> datetime | None:
    found = next((one for one in (pod.get("status") or {}).get("conditions", ()) if one["type"] == "Ready"), None)
    return moment_of(found["lastTransitionTime"]) if found is not None and found["status"] == "True" else None
