"""The engine's container: what it is told, what it gets, how it is asked for its health, how it ends.

Where engines share their cache of weights, a container before it is the only one that may write there: an engine that
was taken over cannot change what the others have mapped.
"""

from __future__ import annotations

import math

from rollouts.kube.model import Json
from rollouts.manifests.conventions import ENGINE, PORT, PORT_NAME, PUBLIC_KEYS
from rollouts.manifests.manifest import Site
from rollouts.manifests.nodes_spec import asks_for_notice
from rollouts.manifests.objects.nodes import gpu_amount

SHARED_MEMORY, SCRATCH_FOLDER, CACHE_FOLDER, KEYS = "shared-memory", "scratch", "model-cache", "keys"
"""Names of the volumes."""

_KEYS_FOLDER = "/etc/tidegate/keys"

_MOUNTS = {SHARED_MEMORY: "/dev/shm", SCRATCH_FOLDER: "/tmp", CACHE_FOLDER: "/var/cache/tidegate"}

WEIGHTS = "weights"
"""The name of the container that pulls them."""

_SECURITY: Json = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}

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
        # Whoever pulls needs the token, and nobody else.
        "env": [*_environment(), *(_token(site) if not pod.cache.claim else [])],
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
        "securityContext": _SECURITY,
        # How it died is told by the pod itself, in the last lines of its log.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": _mounts(site),
    }


def pulling(site: Site) -> list[Json]:
    """The container that brings weights into a shared cache; none where each pod has a cache of its own."""
    pod = site.fleet.pod
    if not pod.cache.claim:
        return []
    mounted = (SCRATCH_FOLDER, CACHE_FOLDER)
    return [
        {
            "name": WEIGHTS,
            "image": site.release.image,
            "command": [pod.python, "-m", "tidegate_entrypoint", "pull", *_signed(site)],
            "env": [*_environment(), *_token(site)],
            "resources": {"requests": {"cpu": pod.cpu, "memory": pod.memory}, "limits": {"memory": pod.memory}},
            "securityContext": _SECURITY,
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": [*({"name": name, "mountPath": _MOUNTS[name]} for name in mounted), *_keys(site)],
        }
    ]


def _mounts(site: Site) -> list[Json]:
    read_only: Json = {"readOnly": True} if site.fleet.pod.cache.claim else {}
    own = (
        {"name": name, "mountPath": path, **(read_only if name == CACHE_FOLDER else {})}
        for name, path in _MOUNTS.items()
    )
    return [*own, *_keys(site)]


def _keys(site: Site) -> list[Json]:
    return [{"name": KEYS, "mountPath": _KEYS_FOLDER, "readOnly": True}] if site.release.public_keys else []


def _signed(site: Site) -> list[str]:
    return ["--public-key", f"{_KEYS_FOLDER}/{PUBLIC_KEYS}"] if site.release.public_keys else []


def _options(site: Site) -> list[str]:
    nodes, pod = site.fleet.nodes, site.fleet.pod
    options = {
        "--port": str(PORT),
        "--grace": f"{pod.drain.total_seconds():g}",
        "--linger": f"{pod.linger.total_seconds():g}",
        "--start-deadline": str(_seconds(site)),
        "--health-deadline": str(HEALTH_DEADLINE),
    }
    if asks_for_notice(nodes):
        options["--spot"] = str(nodes.cloud)
    return [*(word for option in options.items() for word in option), *_signed(site)]


def _environment() -> list[Json]:
    # Libraries write below the home folder, and nothing else of the image can be written to.
    return [{"name": "HOME", "value": _MOUNTS[SCRATCH_FOLDER]}]


def _token(site: Site) -> list[Json]:
    secret = site.fleet.pod.cache.secret
    token = {"secretKeyRef": {"name": secret, "key": "token"}}
    return [{"name": "TIDEGATE_WEIGHTS_TOKEN", "valueFrom": token}] if secret else []


def _seconds(site: Site) -> int:
    return math.ceil(site.fleet.pod.start_within.total_seconds())


def _probe(path: str, period: int, *, failures: int, timeout: int = 1) -> Json:
    return {
        "httpGet": {"path": path, "port": PORT_NAME},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
    }
