"""What every renderer is given, and what all objects have: a kind, a name, a namespace, labels of their delivery."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, NamedTuple

from pydantic import Field

from rollouts.kube.resources import Resource
from rollouts.manifests.conventions import cluster_wide
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.model import ImageLaunch
from tidegate.core.model import Json, Value
from tidegate.core.names import DELIVERY, MANAGED_BY

Percentage = Annotated[int, Field(ge=0, le=100)]


class Release(Value):
    """One engine in one region. Two regions of a delivery differ in `region` alone."""

    delivery: str
    """The delivery's name, and that of its Rollout."""
    region: str
    version: str
    """The model version in the registry, such as `7`."""
    digest: str
    """SHA-256 over the model version's files, as hex digits."""
    image: str
    """REGISTRY/REPOSITORY@DIGEST: a tag may mean something else tomorrow."""
    launch: ImageLaunch | None = None
    """How the image is started; None for one of tidegate's own making, which knows."""
    public_keys: str = ""
    """Of the one who builds engines, one PEM after the other: an engine whose manifest none of them signed does not
    start. Nobody is asked for when empty."""
    accelerator: str = "cpu"
    """As the delivery's `engine.accelerator` names it; `cpu` asks for no GPU."""
    accelerators: int = 1
    """As `engine.accelerator_count`: how many one engine takes."""
    mirror: Percentage = 100
    """Percent of requests copied to a canary before it gets users; 0 for none."""
    weights: tuple[Annotated[int, Field(ge=1, le=99)], ...] = (5, 25, 50)
    """Percent of users that a canary gets, rising; empty when it gets none before it is promoted."""
    guard: str = ""
    """The image of what ends a trial without a carrier, by digest; nothing does so where it is empty."""
    asked: bool = False
    """Whether stages ask its Services through the API server."""
    samples: bool = False
    """Whether engines may be asked to keep a share of users' requests."""
    driver: bool = False
    """Whether tidegate acts as a service account of its own there."""
    repositories: tuple[str, ...] = ()
    """That engines may come from, as the trust file says: REGISTRY/REPOSITORY, or REGISTRY/PATH/*. Any when empty."""
    accounts: tuple[str, ...] = ()
    """User names that act as tidegate there, besides the driver's and the guard's."""


class Site:
    """One engine in one region of a fleet: what every renderer is given."""

    def __init__(self, fleet: ArgoFleetSpec, release: Release) -> None:
        self.fleet, self.release = fleet, release
        self.name, self.namespace = release.delivery, fleet.namespace
        """Of the delivery, and of its Rollout."""
        self.replicas = fleet.replicas_in(release.region)
        """Engines of the region, before any autoscaling."""
        self.prometheus = fleet.regions[release.region].prometheus
        self.account = fleet.pod.service_account or self.name
        """The service account of the engines."""
        self.selector = {DELIVERY: self.name}
        """Labels of every engine's pod and of no other; a version more or less does not change them."""
        self.keeps_samples = release.samples and release.launch is None
        """Whether this very engine may be asked to: an image that tidegate did not build knows nothing of it."""


UNPRIVILEGED: Json = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
"""The `securityContext` of every container that is rendered here."""


class Place(NamedTuple):
    """Where objects next to those of others are rendered."""

    name: str
    """Of the delivery."""
    namespace: str


def manifest(
    resource: Resource, name: str, site: Site | Place, *, labels: Mapping[str, str] | None = None, **parts: object
) -> Json:
    """The object, with `parts` besides its metadata; one without namespace gets a name that is the site's own."""
    placed = {"name": name, "namespace": site.namespace}
    if not resource.namespaced:
        placed = {"name": cluster_wide(site.namespace, name)}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {**placed, "labels": {**MANAGED_BY, DELIVERY: site.name, **(labels or {})}},
        **parts,
    }
