"""The Rollout of a region's engines: its pod template, the engine's container, and the budget for disruptions.

Where engines share their cache of weights, an init container is the only one that may write there: an engine that was
taken over cannot change what the others have mapped.
"""

from __future__ import annotations

import math

from rollouts.kube.resources import POD_DISRUPTION_BUDGETS, ROLLOUTS
from rollouts.manifests.conventions import (
    DIGEST,
    ENGINE,
    PORT,
    PORT_NAME,
    PUBLIC_KEYS,
    WEIGHTS,
    WEIGHTS_TOKEN,
    cluster_wide,
    public_keys,
)
from rollouts.manifests.fields import whole_seconds
from rollouts.manifests.manifest import UNPRIVILEGED, ReleaseCandidate, Site, manifest
from rollouts.manifests.nodes_spec import asks_for_notice
from rollouts.manifests.objects.nodes import gpu_amount, scheduling
from rollouts.manifests.objects.strategy import strategy
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY, REGION, VERSION

SHARED_MEMORY, SCRATCH_FOLDER, CACHE_FOLDER, KEYS = "shared-memory", "scratch", "model-cache", "keys"
"""Names of the volumes."""

_KEYS_FOLDER = "/etc/tidegate/keys"

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
    start = whole_seconds(pod.start_within)
    return {
        "name": ENGINE,
        "image": site.release.image,
        "args": _options(site),
        # Anyone who pulls needs the token, and nobody else.
        "env": [*_environment(), *(_token(site) if not pod.cache.claim else [])],
        "ports": [{"name": PORT_NAME, "containerPort": PORT, "protocol": "TCP"}],
        "resources": {
            "requests": {"cpu": pod.cpu, "memory": pod.memory, **gpu_amount(site)},
            # No limit on processors: an engine that is held up between two tokens keeps its GPU waiting.
            "limits": {"memory": pod.memory, **gpu_amount(site)},
        },
        "startupProbe": _probe(READY, STARTUP_PERIOD, failures=math.ceil(start / STARTUP_PERIOD)),
        "readinessProbe": _probe(READY, READY_PERIOD, failures=2),
        "livenessProbe": _probe(HEALTH, HEALTH_PERIOD, failures=3, timeout=HEALTH_DEADLINE + 5),
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
            "env": [*_environment(), *_token(site)],
            "resources": {"requests": {"cpu": pod.cpu, "memory": pod.memory}, "limits": {"memory": pod.memory}},
            "securityContext": UNPRIVILEGED,
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
        "--start-deadline": str(whole_seconds(pod.start_within)),
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
    return [{"name": WEIGHTS_TOKEN, "valueFrom": token}] if secret else []


def _probe(path: str, period: int, *, failures: int, timeout: int = 1) -> Json:
    return {
        "httpGet": {"path": path, "port": PORT_NAME},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
    }


MARGIN_SECONDS = 30
"""Beyond the drain: process 1 ends at most 20 s after its grace, and the preStop hook has to start."""


def pod_template(site: Site) -> Json:
    """Everything that makes a version's pods; what changes here makes a new revision."""
    release, pod = site.release, site.fleet.pod
    labels = {**pod.labels, DELIVERY: site.name, REGION: release.region, VERSION: release.version}
    metadata: Json = {"labels": labels}
    if release.digest:
        metadata["annotations"] = {DIGEST: release.digest}
    spec: Json = {
        "serviceAccountName": site.name,
        "automountServiceAccountToken": False,
        # Kubernetes writes a variable for each Service of the namespace, some of which vLLM would take for its own.
        "enableServiceLinks": False,
        "priorityClassName": cluster_wide(site.fleet.namespace, f"{site.name}-engines"),
        "terminationGracePeriodSeconds": whole_seconds(pod.drain) + MARGIN_SECONDS,
        "securityContext": _security(pod.user),
        **({"imagePullSecrets": [{"name": name} for name in pod.pull_secrets]} if pod.pull_secrets else {}),
        **scheduling(site),
        "topologySpreadConstraints": [
            _apart(key, site) for key in ("topology.kubernetes.io/zone", "kubernetes.io/hostname")
        ],
        **({"initContainers": before} if (before := pulling(site)) else {}),
        "containers": [container(site)],
        "volumes": _volumes(site),
    }
    return {"metadata": metadata, "spec": spec}


def _security(user: int) -> Json:
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _apart(topology: str, site: Site) -> Json:
    """One zone or node that is gone should not be all engines; rather all in one than none at all."""
    return {
        "maxSkew": 1,
        "topologyKey": topology,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": dict(site.selector)},
    }


def _volumes(site: Site) -> list[Json]:
    cache = site.fleet.pod.cache
    kept: Json = (
        {"persistentVolumeClaim": {"claimName": cache.claim}}
        if cache.claim
        else {"emptyDir": {"sizeLimit": cache.size}}
    )
    name = public_keys(site.name)
    keys: list[Json] = [{"name": KEYS, "configMap": {"name": name}}] if site.release.public_keys else []
    return [
        {"name": SHARED_MEMORY, "emptyDir": {"medium": "Memory", "sizeLimit": site.fleet.pod.shared_memory}},
        {"name": SCRATCH_FOLDER, "emptyDir": {}},
        {"name": CACHE_FOLDER, **kept},
        *keys,
    ]


HISTORY = 10
"""Old ReplicaSets that are remembered; Argo Rollouts wants no fewer than it keeps warm."""


def rollout(site: Site, trial: ReleaseCandidate, analyses: tuple[Json, ...]) -> Json:
    """The object. With an autoscaler it says no number of engines, or saying it again would take some away.

    Raises:
        UsageError: see `strategy`.
    """
    fleet, release = site.fleet, site.release
    # Counted are all that were made in between, those that were taken back too (`isRollbackWithinWindow`); and no
    # trial comes back through it past its gates, since each is a template of its own.
    window = {"rollbackWindow": {"revisions": HISTORY}} if fleet.previous else {}
    spec: Json = {
        **({} if fleet.autoscale else {"replicas": site.replicas}),
        "revisionHistoryLimit": HISTORY,
        "progressDeadlineSeconds": whole_seconds(fleet.pod.ready_within),
        **window,
        "selector": {"matchLabels": dict(site.selector)},
        "strategy": strategy(site, trial, analyses),
        "template": pod_template(site),
    }
    labels = {REGION: release.region, VERSION: release.version}
    return manifest(ROLLOUTS, site.name, site, labels=labels, spec=spec)


def disruption_budget(site: Site) -> Json:
    """How many engines, whatever their version, may be away because nodes are drained."""
    spec = {"maxUnavailable": site.fleet.unavailable, "selector": {"matchLabels": dict(site.selector)}}
    return manifest(POD_DISRUPTION_BUDGETS, site.name, site, spec=spec)
