"""Why engines do not come up, from what their pods say. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rollouts.kube.model import Json

HOPELESS = {
    "CrashLoopBackOff",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
}
"""Reasons of a waiting container for which the kubelet has tried more than once, or will not try."""


def hopeless(pods: Sequence[Json]) -> str:
    """The first reason why waiting is of no use; empty while it may be."""
    return next((_told(pod, status) for pod in pods for status in _containers(pod) if _reason(status) in HOPELESS), "")


def problems(pods: Sequence[Json]) -> str:
    """Everything that keeps pods from being ready, each reason once; empty when nothing is known."""
    return "; ".join(dict.fromkeys(_all(pods)))


def is_ready(pod: Json) -> bool:
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
                yield _told(pod, status)


def _told(pod: Json, status: Json) -> str:
    waiting = (status.get("state") or {}).get("waiting") or {}
    said = [_reason(status), waiting.get("message") or "", _words(status)]
    return f"{_name(pod)}: " + ": ".join(dict.fromkeys(word for word in said if word))


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
