"""The Rollout of a region's engines: its pod template, and the budget for disruptions."""

from __future__ import annotations

from rollouts.kube.resources import POD_DISRUPTION_BUDGETS, ROLLOUTS
from rollouts.manifests.conventions import DIGEST, LAUNCH, cluster_wide, public_keys
from rollouts.manifests.customization.template import onto
from rollouts.manifests.fields import whole_seconds
from rollouts.manifests.manifest import ReleaseCandidate, Site, manifest
from rollouts.manifests.objects.container import container, pulling
from rollouts.manifests.objects.nodes import gpu_amount, scheduling
from rollouts.manifests.objects.pod_parts import CACHE_FOLDER, KEYS, SCRATCH_FOLDER, SHARED_MEMORY
from rollouts.manifests.objects.prebuilt import bringing, claim_volume, prebuilt_container
from rollouts.manifests.objects.strategy import strategy
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY, REGION, VERSION

MARGIN_SECONDS = 30
"""Beyond the drain: process 1 ends at most 20 s after its grace, and the preStop hook has to start."""


def pod_template(site: Site) -> Json:
    """Everything that makes a version's pods; what changes here makes a new revision."""
    release, pod = site.release, site.fleet.pod
    labels = {**pod.labels, DELIVERY: site.name, REGION: release.region, VERSION: release.version}
    metadata: Json = {"labels": labels}
    if annotations := _annotations(site):
        metadata["annotations"] = annotations
    spec: Json = {
        "serviceAccountName": site.account,
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
        **({"initContainers": before} if (before := _before(site)) else {}),
        "containers": [_engine(site)],
        "volumes": _volumes(site),
    }
    ours = {"metadata": metadata, "spec": spec}
    theirs = site.fleet.pod_template
    if theirs is None or site.fleet.template is None:
        return ours
    return onto(theirs, ours, site.fleet.template.container)


def _annotations(site: Site) -> dict[str, str]:
    release = site.release
    launch = {LAUNCH: release.launch.model_dump_json(exclude_defaults=True)} if release.launch else {}
    return {**({DIGEST: release.digest} if release.digest else {}), **launch}


def _engine(site: Site) -> Json:
    launch, gpus = site.release.launch, gpu_amount(site)
    return prebuilt_container(site, launch, gpus) if launch else container(site, gpus)


def _before(site: Site) -> list[Json]:
    return bringing(site, site.release.launch) if site.release.launch else pulling(site)


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
        *(claim_volume(site.release.launch) if site.release.launch else []),
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
