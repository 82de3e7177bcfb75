"""The pod of an engine: whose account it has, where it may run, its disks, and what comes before its container."""

from __future__ import annotations

from collections.abc import Sequence

from rollouts.manifests.conventions import DIGEST, LAUNCH, public_keys
from rollouts.manifests.fields import whole_seconds
from rollouts.manifests.manifest import Site
from rollouts.manifests.objects.engines import samples
from rollouts.manifests.objects.pod_parts import CACHE_FOLDER, CLAIM, KEYS, SCRATCH_FOLDER, SHARED_MEMORY
from rollouts.model import ImageLaunch
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY, REGION, VERSION

MARGIN_SECONDS = 30
"""Beyond the drain: process 1 ends at most 20 s after its grace, and the preStop hook has to start."""


def engine_pod(site: Site, engine: Json, before: Sequence[Json], placed: Json) -> Json:
    """A pod template around the container of an engine, or of a part of one.

    Args:
        site: what is rendered.
        engine: the container.
        before: init containers.
        placed: the parts of its spec that choose a node.
    """
    release, pod = site.release, site.fleet.pod
    labels = {DELIVERY: site.name, REGION: release.region, VERSION: release.version}
    metadata: Json = {"labels": labels}
    if annotations := _annotations(site):
        metadata["annotations"] = annotations
    spec: Json = {
        "serviceAccountName": site.account,
        "automountServiceAccountToken": False,
        # Kubernetes writes a variable for each Service of the namespace, some of which vLLM would take for its own.
        "enableServiceLinks": False,
        **({"priorityClassName": site.priority} if site.priority else {}),
        "terminationGracePeriodSeconds": whole_seconds(pod.drain) + MARGIN_SECONDS,
        "securityContext": _security(pod.user),
        **({"imagePullSecrets": [{"name": name} for name in pod.pull_secrets]} if pod.pull_secrets else {}),
        **placed,
        **({"initContainers": list(before)} if before else {}),
        "containers": [engine],
        "volumes": _volumes(site),
    }
    return {"metadata": metadata, "spec": spec}


def _annotations(site: Site) -> dict[str, str]:
    release = site.release
    launch = {LAUNCH: release.launch.model_dump_json(exclude_defaults=True)} if release.launch else {}
    return {**({DIGEST: release.digest} if release.digest else {}), **launch}


def _security(user: int) -> Json:
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
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
        *([samples.volume(site.name)] if site.keeps_samples else []),
        *(_claim(site.release.launch) if site.release.launch else []),
    ]


def _claim(launch: ImageLaunch) -> list[Json]:
    """The volume of its claim."""
    claim = {"claimName": launch.claim, "readOnly": True}
    return [{"name": CLAIM, "persistentVolumeClaim": claim}] if launch.claim else []
