"""The Rollout of a region's engines, with the template of its pods."""

from __future__ import annotations

from rollouts.kube.resources import ROLLOUTS
from rollouts.manifests.fields import whole_seconds
from rollouts.manifests.manifest import Site, manifest
from rollouts.manifests.objects.container import container, pulling
from rollouts.manifests.objects.engines.pod import engine_pod
from rollouts.manifests.objects.nodes import gpu_amount, scheduling
from rollouts.manifests.objects.prebuilt import bringing, prebuilt_container
from rollouts.manifests.objects.strategy import strategy
from tidegate.core.model import Json
from tidegate.core.names import REGION, VERSION


def pod_template(site: Site) -> Json:
    """Everything that makes a version's pods; what changes here makes a new revision."""
    launch, gpus = site.release.launch, gpu_amount(site)
    engine = prebuilt_container(site, launch, gpus) if launch else container(site, gpus)
    before = bringing(site, launch) if launch else pulling(site)
    apart = [_apart(key, site) for key in ("topology.kubernetes.io/zone", "kubernetes.io/hostname")]
    return engine_pod(site, engine, before, {**scheduling(site), "topologySpreadConstraints": apart})


def _apart(topology: str, site: Site) -> Json:
    """One zone or node that is gone should not be all engines; rather all in one than none at all."""
    return {
        "maxSkew": 1,
        "topologyKey": topology,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": dict(site.selector)},
    }


HISTORY = 10
"""Old ReplicaSets that are remembered; Argo Rollouts wants no fewer than it keeps warm."""


def rollout(site: Site, analyses: tuple[Json, ...]) -> Json:
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
        "strategy": strategy(site, analyses),
        "template": pod_template(site),
    }
    labels = {REGION: release.region, VERSION: release.version}
    return manifest(ROLLOUTS, site.name, site, labels=labels, spec=spec)
