"""What pods say of themselves: their status in one word, whether they are ready, and why they do not start. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidegate.core.model import Json

CRASH_LOOP = "CrashLoopBackOff"
"""The reason of a container that ends soon after each start."""

_IMAGE_RETRIED = frozenset({"ErrImagePull", "RegistryUnavailable"})
IMAGE_FAILURES = _IMAGE_RETRIED | {"ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}
"""Reasons of a container that waits for its image."""

START_FAILURES = (IMAGE_FAILURES - _IMAGE_RETRIED) | {
    CRASH_LOOP,
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
}
"""Reasons of a waiting container that the kubelet retries in vain, or does not retry."""

LOST_NODE = "NodeLost"
"""The reason of a pod whose node does not answer any more."""


@dataclass(frozen=True)
class PodStatus:
    """One pod in a line."""

    word: str
    ready: int
    containers: int
    restarts: int


def pod_status(pod: Json) -> PodStatus:
    """The containers' reasons before the pod's own; while it initializes, those of its init containers."""
    status, spec = pod.get("status") or {}, pod.get("spec") or {}
    word = str(status.get("reason") or status.get("phase") or "")
    initializing, init_restarts = _initializing(pod)
    found = status.get("containerStatuses") or []
    restarts = sum(container.get("restartCount") or 0 for container in found)
    running = [each for each in found if each.get("ready") and (each.get("state") or {}).get("running") is not None]
    if not initializing:
        words = [_word(container, "") for container in found]
        word = next((each for each in words if each), word)
        if word == "Completed" and running:
            word = "Running"
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        initializing = "Unknown" if status.get("reason") == LOST_NODE else "Terminating"
    return PodStatus(
        word=initializing or word,
        ready=0 if initializing.startswith("Init:") else len(running),
        containers=len(spec.get("containers") or []),
        restarts=init_restarts if initializing.startswith("Init:") else restarts,
    )


def _initializing(pod: Json) -> tuple[str, int]:
    """The word of the first init container that is not done, and the restarts so far; empty when all are done."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    planned = spec.get("initContainers") or []
    sidecars = {each.get("name") for each in planned if each.get("restartPolicy") == "Always"}
    restarts = 0
    for index, container in enumerate(status.get("initContainerStatuses") or []):
        restarts += container.get("restartCount") or 0
        state = container.get("state") or {}
        if (state.get("terminated") or {}).get("exitCode") == 0:
            continue
        # Upstream goes on with the next one only when the sidecar is ready, and else stops here without a word.
        if container.get("name") in sidecars and container.get("started"):
            if container.get("ready"):
                continue
            return "", restarts
        waiting = (state.get("waiting") or {}).get("reason")
        if "terminated" in state or (waiting and waiting != "PodInitializing"):
            return _word(container, "Init:"), restarts
        return f"Init:{index}/{len(planned)}", restarts
    return "", restarts


def _word(container: Json, prefix: str) -> str:
    state = container.get("state") or {}
    waiting, terminated = state.get("waiting") or {}, state.get("terminated")
    if waiting.get("reason"):
        return f"{prefix}{waiting['reason']}"
    if terminated is None:
        return ""
    if terminated.get("reason"):
        return f"{prefix}{terminated['reason']}"
    if terminated.get("signal"):
        return f"{prefix}Signal:{terminated['signal']}"
    return f"{prefix}ExitCode:{terminated.get('exitCode', 0)}"


def start_failure(pods: Sequence[Json]) -> str:
    """The first reason why a pod will not start without help; empty while it still may."""
    return next(
        (_describe(pod, status) for pod in pods for status in _containers(pod) if _reason(status) in START_FAILURES), ""
    )


def pod_problems(pods: Sequence[Json]) -> str:
    """Everything that keeps pods from being ready, each reason once; empty when nothing is known."""
    return "; ".join(dict.fromkeys(_all(pods)))


def is_pod_ready(pod: Json) -> bool:
    """Whether Services send requests to it."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
    return ready and not pod["metadata"].get("deletionTimestamp")


def _all(pods: Sequence[Json]) -> Iterator[str]:
    for pod in pods:
        for condition in (pod.get("status") or {}).get("conditions") or []:
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                yield f"no node for {_name(pod)}: {condition.get('message') or condition.get('reason')}"
        for status in _containers(pod):
            if _reason(status) or _words(status):
                yield _describe(pod, status)


def _describe(pod: Json, status: Json) -> str:
    waiting = (status.get("state") or {}).get("waiting") or {}
    parts = [_reason(status), waiting.get("message") or "", _words(status)]
    return f"{_name(pod)}: " + ": ".join(dict.fromkeys(word for word in parts if word))


def _words(status: Json) -> str:
    """How a container ended: the tail of its log, which the pod asks Kubernetes to keep; else the reason."""
    states = (status.get("state") or {}, status.get("lastState") or {})
    ended: Json = next((state["terminated"] for state in states if state.get("terminated")), {})
    if not ended:
        return ""
    return str(ended.get("message") or "").strip() or f"{ended.get('reason')}, exit code {ended.get('exitCode')}"


def _reason(status: Json) -> str:
    reason = str(((status.get("state") or {}).get("waiting") or {}).get("reason") or "")
    return "" if reason in {"ContainerCreating", "PodInitializing"} else reason


def _containers(pod: Json) -> list[Json]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def _name(pod: Json) -> str:
    return str(pod["metadata"].get("name", ""))
