"""The containers of an engine that tidegate built: its image says what process 1 is, and we say only the options.

Where engines share their cache of weights, an init container is the only one that may write there: an engine that was
taken over cannot change what the others have mapped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from rollouts.manifests.conventions import ENGINE, PORT, PORT_NAME, PUBLIC_KEYS, WEIGHTS, WEIGHTS_TOKEN
from rollouts.manifests.fields import whole_seconds
from rollouts.manifests.manifest import UNPRIVILEGED, Site
from rollouts.manifests.nodes_spec import asks_for_notice
from rollouts.manifests.objects.engines import samples
from rollouts.manifests.objects.pod_parts import CACHE_FOLDER, HOME, KEYS, MOUNTS, SCRATCH_FOLDER, probe
from tidegate.core.model import Json

_KEYS_FOLDER = "/etc/tidegate/keys"

READY, HEALTH = "/tidegate/ready", "/tidegate/health"
"""Answered by the entrypoint: whether the engine has answered its warm-up and does not drain; whether it generates."""

STARTUP_PERIOD, READY_PERIOD, HEALTH_PERIOD = 5, 2, 10
"""Seconds."""

HEALTH_DEADLINE = 10
"""Seconds that the entrypoint gives one test inference; a probe has to wait longer than that."""


def container(site: Site, gpus: Mapping[str, str]) -> Json:
    """The one container of an engine's pod, with `gpus`. Its image says what process 1 is; we say only the options."""
    pod = site.fleet.pod
    start = whole_seconds(pod.start_within)
    return {
        "name": ENGINE,
        "image": site.release.image,
        "args": _options(site),
        # Anyone who pulls needs the token, and nobody else.
        "env": [HOME, *(_token(site) if not pod.cache.claim else [])],
        "ports": [{"name": PORT_NAME, "containerPort": PORT, "protocol": "TCP"}],
        "resources": {
            "requests": {"cpu": pod.cpu, "memory": pod.memory, **gpus},
            # No limit on processors: an engine that is held up between two tokens keeps its GPU waiting.
            "limits": {"memory": pod.memory, **gpus},
        },
        "startupProbe": probe(READY, STARTUP_PERIOD, failures=math.ceil(start / STARTUP_PERIOD)),
        "readinessProbe": probe(READY, READY_PERIOD, failures=2),
        "livenessProbe": probe(HEALTH, HEALTH_PERIOD, failures=3, timeout=HEALTH_DEADLINE + 5),
        "lifecycle": {"preStop": {"exec": {"command": [pod.python, "-m", "tidegate_entrypoint", "drain"]}}},
        "securityContext": UNPRIVILEGED,
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
            "env": [HOME, *_token(site)],
            "resources": {"requests": {"cpu": pod.cpu, "memory": pod.memory}, "limits": {"memory": pod.memory}},
            "securityContext": UNPRIVILEGED,
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": [*({"name": name, "mountPath": MOUNTS[name]} for name in mounted), *_keys(site)],
        }
    ]


def _mounts(site: Site) -> list[Json]:
    read_only: Json = {"readOnly": True} if site.fleet.pod.cache.claim else {}
    own = (
        {"name": name, "mountPath": path, **(read_only if name == CACHE_FOLDER else {})}
        for name, path in MOUNTS.items()
    )
    return [*own, *_keys(site), *([samples.MOUNT] if site.keeps_samples else [])]


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
        "--start-deadline": str(whole_seconds(pod.start_within)),
        "--health-deadline": str(HEALTH_DEADLINE),
    }
    if site.release.key_policy != "warn":
        options["--key-policy"] = site.release.key_policy
    if asks_for_notice(nodes):
        options["--spot"] = str(nodes.cloud)
    told = [*(word for option in options.items() for word in option), *_signed(site)]
    return [*told, *samples.options(site.release.version)] if site.keeps_samples else told


def _token(site: Site) -> list[Json]:
    secret = site.fleet.pod.cache.secret
    token = {"secretKeyRef": {"name": secret, "key": "token"}}
    return [{"name": WEIGHTS_TOKEN, "valueFrom": token}] if secret else []
