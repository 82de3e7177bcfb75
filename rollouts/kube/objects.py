"""Reading Kubernetes objects that others wrote, of which any part may be missing. Pure.

And what they mean: why pods do not start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tidegate.core.model import Json

Labels = Mapping[str, str]


def at(value: Any, *path: str | int, default: Any = None) -> Any:
    """What is at `path`; `default` where a part of it is missing, null, or no place for a key."""
    for key in path:
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and isinstance(key, int) and -len(value) <= key < len(value):
            value = value[key]
        else:
            return default
    return default if value is None else value


def name_of(item: Json) -> str:
    """Its name."""
    return str(at(item, "metadata", "name", default=""))


def said(item: Json) -> str:
    """Kind and name, such as `Service support-llm-canary`."""
    return f"{item.get('kind', 'object')} {name_of(item)}"


def labels_of(item: Json) -> Labels:
    """Its labels."""
    found: Labels = at(item, "metadata", "labels", default={})
    return found


def selects(selector: Labels, labels: Labels) -> bool:
    """Whether a Service's selector takes in what has these labels; an empty one selects nothing."""
    return bool(selector) and all(labels.get(key) == value for key, value in selector.items())


def written(labels: Labels) -> str:
    """Labels that are all wanted, as a request for a list takes them."""
    return ",".join(f"{key}={value}" for key, value in labels.items())


def condition(item: Json, kind: str) -> Json | None:
    """The condition of that type in its status."""
    conditions = at(item, "status", "conditions", default=[])
    return next((found for found in conditions if found.get("type") == kind), None)


def containers_of(template: Json) -> list[Json]:
    """The containers of a pod or of a pod template, without init containers."""
    found: list[Json] = at(template, "spec", "containers", default=[])
    return found


def container_states(pod: Json) -> Iterator[Json]:
    """The status of every container of a pod, init containers first."""
    yield from at(pod, "status", "initContainerStatuses", default=[])
    yield from at(pod, "status", "containerStatuses", default=[])


def is_ready(pod: Json) -> bool:
    """Whether it takes requests."""
    found = condition(pod, "Ready")
    return found is not None and found.get("status") == "True" and at(pod, "metadata", "deletionTimestamp") is None


def time_at(item: Json, *path: str | int) -> datetime | None:
    """A time in RFC 3339, in UTC; None when there is none."""
    text = at(item, *path)
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return None


def owns_field(entry: Json, path: tuple[str, ...]) -> bool:
    """Whether an entry of `metadata.managedFields` has that field, or one below it."""
    fields = entry.get("fieldsV1") or {}
    for part in path:
        if part not in fields:
            return False
        fields = fields[part]
    return True


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
    found = list[str]()
    for pod in pods:
        scheduled = condition(pod, "PodScheduled") or {}
        if scheduled.get("status") == "False":
            found.append(f"no node for {name_of(pod)}: {scheduled.get('message') or scheduled.get('reason')}")
        found += [_describe(pod, each) for each in container_states(pod) if _reason(each) or _words(each)]
    return "; ".join(dict.fromkeys(found))


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
