"""What all objects have: a kind, a name, a namespace, labels that say whose they are."""

from __future__ import annotations

from collections.abc import Mapping

from rollouts.kube.model import Json, Resource
from rollouts.manifests.conventions import DELIVERY, MANAGED_BY, cluster_wide
from rollouts.manifests.release import Release
from rollouts.manifests.spec import ArgoFleetSpec
from tidegate.core.model import Value


class Site(Value):
    """One engine in one region of a fleet: what every renderer is given."""

    fleet: ArgoFleetSpec
    release: Release

    @property
    def name(self) -> str:
        """Of the delivery, and of its Rollout."""
        return self.release.delivery

    @property
    def replicas(self) -> int:
        """Engines of the region, before any autoscaling."""
        return self.fleet.replicas_in(self.release.region)

    @property
    def selector(self) -> Mapping[str, str]:
        """Labels of every engine's pod and of no other; a version more or less does not change them."""
        return {DELIVERY: self.name}


def manifest(
    resource: Resource, name: str, site: Site, *, labels: Mapping[str, str] | None = None, **parts: object
) -> Json:
    """The object, with `parts` beside its metadata; one without namespace gets a name that is the site's own."""
    placed = {"name": name, "namespace": site.fleet.namespace}
    if not resource.namespaced:
        placed = {"name": cluster_wide(site.fleet.namespace, name)}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {**placed, "labels": {**MANAGED_BY, DELIVERY: site.name, **(labels or {})}},
        **parts,
    }
