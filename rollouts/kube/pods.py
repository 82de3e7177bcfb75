"""What pods say of themselves: whether they are ready, and why they do not start. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
