"""One word for a pod, as `kubectl get pods` has it."""

from __future__ import annotations

from typing import Any

import pytest

from rollouts.kube.pods import pod_status
from tidegate.core.model import Json

READY = {"name": "engine", "ready": True, "state": {"running": {}}}
DONE = {"name": "weights", "state": {"terminated": {"exitCode": 0}}}


def pod(*containers: Json, init: tuple[Json, ...] = (), sidecar: bool = False, **status: Any) -> Json:
    planned = [{"name": each["name"], **({"restartPolicy": "Always"} if sidecar else {})} for each in init]
    return {
        "metadata": {"name": "support-llm-1"},
        "spec": {"containers": [{"name": each["name"]} for each in containers], "initContainers": planned},
        "status": {
            "phase": "Running",
            "containerStatuses": list(containers),
            "initContainerStatuses": list(init),
            **status,
        },
    }


def waiting(reason: str, restarts: int = 0) -> Json:
    return {"name": "engine", "ready": False, "restartCount": restarts, "state": {"waiting": {"reason": reason}}}


def ended(**state: Any) -> Json:
    return {"name": "engine", "ready": False, "state": {"terminated": state}}


@pytest.mark.parametrize(
    ("what", "word", "ready", "restarts"),
    [
        (pod(READY), "Running", 1, 0),
        (pod(READY, waiting("CrashLoopBackOff", 3)), "CrashLoopBackOff", 1, 3),
        (pod(waiting("ImagePullBackOff"), phase="Pending"), "ImagePullBackOff", 0, 0),
        (pod(ended(reason="OOMKilled", exitCode=137)), "OOMKilled", 0, 0),
        (pod(ended(exitCode=1)), "ExitCode:1", 0, 0),
        (pod(ended(signal=9, exitCode=137)), "Signal:9", 0, 0),
        (pod(ended(reason="Completed", exitCode=0), READY), "Running", 1, 0),
        (pod(ended(reason="Completed", exitCode=0), phase="Succeeded"), "Completed", 0, 0),
        (pod(phase="Failed", reason="Evicted"), "Evicted", 0, 0),
        (pod(phase="Pending"), "Pending", 0, 0),
        (pod(READY, init=(DONE,)), "Running", 1, 0),
        (pod(waiting("PodInitializing"), init=({"name": "weights", "state": {"running": {}}},)), "Init:0/1", 0, 0),
        (
            pod(
                waiting("PodInitializing"),
                init=(DONE, {"name": "warm", "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}),
            ),
            "Init:CrashLoopBackOff",
            0,
            2,
        ),
        (
            pod(waiting("PodInitializing"), init=({"name": "w", "state": {"terminated": {"exitCode": 3}}},)),
            "Init:ExitCode:3",
            0,
            0,
        ),
        (
            pod(
                READY, init=({"name": "proxy", "started": True, "ready": True, "state": {"running": {}}},), sidecar=True
            ),
            "Running",
            1,
            0,
        ),
        (
            pod(
                READY,
                init=({"name": "proxy", "started": True, "ready": False, "state": {"running": {}}},),
                sidecar=True,
            ),
            "Running",
            1,
            0,
        ),
    ],
)
def test_word(what: Json, word: str, ready: int, restarts: int) -> None:
    status = pod_status(what)
    assert (status.word, status.ready, status.restarts) == (word, ready, restarts)


def test_a_pod_that_is_deleted_is_terminating_or_lost_with_its_node() -> None:
    going = pod(READY)
    going["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    assert pod_status(going).word == "Terminating"
    going["status"]["reason"] = "NodeLost"
    assert pod_status(going).word == "Unknown"
