"""The containers of an engine whose image is somebody else's: its own entrypoint, and vLLM's own `/health`.

It does not drain as tidegate's entrypoint does. Kubernetes takes a pod that ends out of its Services and runs `preStop`
at the same time: while that sleeps, the engine still answers whom gateways send, and finishes what it has begun.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta

from rollouts.manifests.conventions import ENGINE, PORT, PORT_NAME, WEIGHTS
from rollouts.manifests.fields import whole_seconds
from rollouts.manifests.manifest import UNPRIVILEGED, Site
from rollouts.manifests.objects.pod_parts import (
    CACHE_FOLDER,
    CLAIM,
    CLAIM_FOLDER,
    HOME,
    MOUNTS,
    SCRATCH_FOLDER,
    SHARED_MEMORY,
    probe,
)
from rollouts.model import ImageLaunch, WeightsPull
from tidegate.core.model import Json

HEALTH = "/health"
"""Of vLLM: 200 once it takes requests."""

STARTUP_PERIOD, READY_PERIOD, HEALTH_PERIOD = 5, 5, 10
"""Seconds."""

LOGNAME: Json = {"name": "LOGNAME", "value": "engine"}
"""PyTorch names a cache folder after its user, and no image knows ours by a name."""


def prebuilt_container(site: Site, launch: ImageLaunch, gpus: Mapping[str, str]) -> Json:
    """The engine, with `gpus`."""
    pod = site.fleet.pod
    start = whole_seconds(pod.start_within)
    return {
        "name": ENGINE,
        "image": site.release.image,
        "args": list(launch.arguments),
        "env": [HOME, LOGNAME, *_variables(launch.environment)],
        "ports": [{"name": PORT_NAME, "containerPort": PORT, "protocol": "TCP"}],
        "resources": {
            "requests": {"cpu": pod.cpu, "memory": pod.memory, **gpus},
            "limits": {"memory": pod.memory, **gpus},
        },
        "startupProbe": probe(HEALTH, STARTUP_PERIOD, failures=math.ceil(start / STARTUP_PERIOD), timeout=5),
        "readinessProbe": probe(HEALTH, READY_PERIOD, failures=3, timeout=5),
        # An engine that is busy answers late: it is given a minute before it is started again.
        "livenessProbe": probe(HEALTH, HEALTH_PERIOD, failures=6, timeout=10),
        "lifecycle": {"preStop": {"sleep": {"seconds": whole_seconds(_left_alone(site, launch))}}},
        "securityContext": UNPRIVILEGED,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": _mounts(launch),
    }


def _left_alone(site: Site, launch: ImageLaunch) -> timedelta:
    """How long before it is told to stop: one that then cuts its answers has all of the drain for them."""
    return site.fleet.pod.linger if launch.ends_its_answers else site.fleet.pod.drain


def bringing(site: Site, launch: ImageLaunch) -> list[Json]:
    """The container that brings and proves a version's files, where nothing else does."""
    return [_bringing(site, launch.pull)] if launch.pull else []


def _bringing(site: Site, pull: WeightsPull) -> Json:
    pod = site.fleet.pod
    return {
        "name": WEIGHTS,
        "image": pull.image,
        "command": list(pull.command),
        "env": [HOME, *_variables(pull.environment)],
        **({"envFrom": [{"secretRef": {"name": name}} for name in pull.secrets]} if pull.secrets else {}),
        "resources": {"requests": {"cpu": pod.cpu, "memory": pod.memory}, "limits": {"memory": pod.memory}},
        "securityContext": UNPRIVILEGED,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": name, "mountPath": MOUNTS[name]} for name in (SCRATCH_FOLDER, CACHE_FOLDER)],
    }


def _variables(environment: Mapping[str, str]) -> list[Json]:
    return [{"name": name, "value": value} for name, value in sorted(environment.items())]


def _mounts(launch: ImageLaunch) -> list[Json]:
    found: list[Json] = [{"name": name, "mountPath": MOUNTS[name]} for name in (SHARED_MEMORY, SCRATCH_FOLDER)]
    if launch.pull:
        found.append({"name": CACHE_FOLDER, "mountPath": MOUNTS[CACHE_FOLDER], "readOnly": True})
    if launch.claim:
        found.append({"name": CLAIM, "mountPath": CLAIM_FOLDER, "readOnly": True})
    return found
