"""What a pod is doing in one word, as `kubectl get pods` says it (`printPod`, and `info/pod_info.go` of the plugin)."""

from __future__ import annotations

from dataclasses import dataclass

from rollouts.kube.model import Json

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
