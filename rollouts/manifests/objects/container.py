"""The engine's container: what it is told, what it gets, how it is asked for its health, how it ends."""

from __future__ import annotations

import math

from rollouts.kube.model import Json
from rollouts.manifests.conventions import ENGINE, PORT, PORT_NAME
from rollouts.manifests.manifest import Site
from rollouts.manifests.nodes_spec import Capacity
from rollouts.manifests.objects.nodes import gpu_amount

SHARED_MEMORY, SCRATCH_FOLDER, CACHE_FOLDER = "shared-memory", "scratch", "model-cache"
"""Names of the volumes."""

_MOUNTS = {SHARED_MEMORY: "/dev/shm", SCRATCH_FOLDER: "/tmp", CACHE_FOLDER: "/var/cache/tidegate"}

READY, HEALTH = "/tidegate/ready", "/tidegate/health"
"""Answered by the entrypoint: whether the engine has answered its warm-up and does not drain; whether it generates."""

STARTUP_PERIOD, READY_PERIOD, HEALTH_PERIOD = 5, 2, 10
"""Seconds."""

HEALTH_DEADLINE = 10
"""Seconds that the entrypoint gives one test inference; a probe has to wait longer than that."""


def container(site: Site) -> Json:
    """The one container of an engine's pod. Its image says what process 1 is; we say only the options."""
    pod = site.fleet.pod
    return {
        "name": ENGINE,
        "image": site.release.image,
        "args": _options(site),
        "env": _environment(site),
        "ports": [{"name": PORT_NAME, "containerPort": PORT, "protocol": "TCP"}],
        "resources": {
            "requests": {"cpu": pod.cpu, "memory": pod.memory, **gpu_amount(site)},
            # No limit on processors: an engine that is held up between two tokens keeps its GPU waiting.
            "limits": {"memory": pod.memory, **gpu_amount(site)},
        },
        "startupProbe": _probe(READY, STARTUP_PERIOD, failures=math.ceil(_seconds(site) / STARTUP_PERIOD)),
        "readinessProbe": _probe(READY, READY_PERIOD, failures=2),
        "livenessProbe": _probe(HEALTH, HEALTH_PERIOD, failures=3, timeout=HEALTH_DEADLINE + 5),
        "lifecycle": {"preStop": {"exec": {"command": [pod.python, "-m", "tidegate_entrypoint", "drain"]}}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        # How it died is told by the pod itself, in the last lines of its log.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in _MOUNTS.items()],
    }


def _options(site: Site) -> list[str]:
    nodes, pod = site.fleet.nodes, site.fleet.pod
    options = {
        "--port": str(PORT),
        "--grace": f"{pod.drain.total_seconds():g}",
        "--linger": f"{pod.linger.total_seconds():g}",
        "--start-deadline": str(_seconds(site)),
        "--health-deadline": str(HEALTH_DEADLINE),
    }
    if nodes.capacity is Capacity.SPOT and nodes.cloud:
        options["--spot"] = str(nodes.cloud)
    return [word for option in options.items() for word in option]


def _environment(site: Site) -> list[Json]:
    # Libraries write below the home folder, and nothing else of the image can be written to.
    variables: list[Json] = [{"name": "HOME", "value": _MOUNTS[SCRATCH_FOLDER]}]
    secret = site.fleet.pod.cache.secret
    if secret:
        token = {"secretKeyRef": {"name": secret, "key": "token"}}
        variables.append({"name": "TIDEGATE_WEIGHTS_TOKEN", "valueFrom": token})
    return variables


def _seconds(site: Site) -> int:
    return math.ceil(site.fleet.pod.start_within.total_seconds())


def _probe(path: str, period: int, *, failures: int, timeout: int = 1) -> Json:
    return {
        "httpGet": {"path": path, "port": PORT_NAME},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
    }
