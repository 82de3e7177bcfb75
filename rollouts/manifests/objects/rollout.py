"""The Rollout: the region's engines, and how a new version replaces the old one."""

from __future__ import annotations

from datetime import timedelta

from rollouts.kube.model import Json
from rollouts.kube.resources import ROLLOUTS
from rollouts.manifests.conventions import REGION, VERSION
from rollouts.manifests.manifest import Site, manifest
from rollouts.manifests.objects.pod import pod_template
from rollouts.manifests.objects.strategy import seconds, strategy
from rollouts.manifests.release import Trial

SLACK = timedelta(minutes=5)
"""Beyond an engine's own deadline: until a node is there and has the image."""

HISTORY = 10
"""Old ReplicaSets that are remembered; Argo Rollouts wants no fewer than it keeps warm."""


def rollout(site: Site, trial: Trial, analyses: tuple[Json, ...]) -> Json:
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
        "progressDeadlineSeconds": seconds(fleet.pod.start_within + SLACK),
        **window,
        "selector": {"matchLabels": dict(site.selector)},
        "strategy": strategy(site, trial, analyses),
        "template": pod_template(site),
    }
    labels = {REGION: release.region, VERSION: release.version}
    return manifest(ROLLOUTS, site.name, site, labels=labels, spec=spec)
