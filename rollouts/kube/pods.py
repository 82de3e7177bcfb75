"""What pods say of themselves: why they do not start. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rollouts.kube.objects import at, condition, container_states, name_of
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
    failed = ((pod, status) for pod in pods for status in container_states(pod) if _reason(status) in START_FAILURES)
    return next((_describe(pod, status) for pod, status in failed), "")


def pod_problems(pods: Sequence[Json]) -> str:
    """Everything that keeps pods from being ready, each reason once; empty when nothing is known."""
    return "; ".join(dict.fromkeys(_all(pods)))


def _all(pods: Sequence[Json]) -> Iterator[str]:
    for pod in pods:
        scheduled = condition(pod, "PodScheduled") or {}
        if scheduled.get("status") == "False":
            yield f"no node for {name_of(pod)}: {scheduled.get('message') or scheduled.get('reason')}"
        for status in container_states(pod):
            if _reason(status) or _words(status):
                yield _describe(pod, status)


def _describe(pod: Json, status: Json) -> str:
    parts = [_reason(status), at(status, "state", "waiting", "message", default=""), _words(status)]
    return f"{name_of(pod)}: " + ": ".join(dict.fromkeys(word for word in parts if word))


def _words(status: Json) -> str:
    """How a container ended: the tail of its log, which the pod asks Kubernetes to keep; else the reason."""
    ended: Json = at(status, "state", "terminated") or at(status, "lastState", "terminated", default={})
    if not ended:
        return ""
    return str(ended.get("message") or "").strip() or f"{ended.get('reason')}, exit code {ended.get('exitCode')}"


def _reason(status: Json) -> str:
    reason = str(at(status, "state", "waiting", "reason", default=""))
    return "" if reason in {"ContainerCreating", "PodInitializing"} else reason
