"""An engine's pod: the template from which Argo Rollouts makes every version's ReplicaSet."""

from __future__ import annotations

from rollouts.kube.model import Json
from rollouts.manifests.conventions import DELIVERY, DIGEST, REGION, VERSION, cluster_wide, public_keys
from rollouts.manifests.manifest import Site
from rollouts.manifests.objects.container import CACHE_FOLDER, KEYS, SCRATCH_FOLDER, SHARED_MEMORY, container, pulling
from rollouts.manifests.objects.nodes import scheduling
from rollouts.manifests.objects.strategy import seconds

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
        "terminationGracePeriodSeconds": seconds(pod.drain) + MARGIN_SECONDS,
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
