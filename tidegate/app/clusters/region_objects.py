"""The objects of one region, and what applying them would change."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipelines.adapters.fleets import cluster_client
from pipelines.adapters.specs import on_clusters, read_spec, region_of
from pipelines.adapters.trust import named_trust, trusted_images
from pipelines.authority.engine_images import pem_of
from pipelines.plan import region_objects
from pipelines.plan.prebuilt import image_launch
from pipelines.plan.region_objects import RegionObjects
from pipelines.spec.delivery import Delivery
from rollouts.cluster.ownership import foreign_objects, refuse_foreign
from rollouts.manifests.conventions import RenderPart
from rollouts.manifests.diff import ObjectDiff, differences
from rollouts.manifests.manifest import Release
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.model import ForeignObject
from tidegate.core.errors import UsageError
from tidegate.core.process import note

_PINNED = re.compile(r"\S+@sha256:[0-9a-f]{64}")
_VERSION = re.compile(r"[1-9][0-9]*")


@dataclass(frozen=True)
class RegionRelease:
    """Which engine, in which region of a delivery."""

    spec: Path
    region: str | None
    """None for the fleet's only one."""
    image: str
    """Empty for the spec's own `engine.image`."""
    version: str
    """Empty where nothing is asked for that depends on the engine."""
    digest: str


@dataclass(frozen=True)
class _Rendered:
    """The objects, and where they belong."""

    fleet: ArgoFleetSpec
    release: Release
    found: RegionObjects

    @property
    def context(self) -> str:
        """The kubeconfig's context of the region's cluster."""
        return self.fleet.regions[self.release.region].context


def render_objects(asked: RegionRelease, parts: Sequence[RenderPart], *, against: bool) -> RegionObjects:
    """The objects; talks to nobody, unless it is asked to look at what is `against` them in the cluster.

    Raises:
        UsageError: no such region, no fleet of clusters, an image that may be another one tomorrow.
        NotOurs: somebody else's objects are there, which would be taken over.
    """
    rendered = _rendered(asked, parts)
    if against:
        refuse_foreign(rendered.release.region, *asyncio.run(_foreign_objects(rendered)))
    return rendered.found


def diff_objects(asked: RegionRelease) -> Sequence[ObjectDiff]:
    """Ask the cluster for dry runs: what would be other than it is.

    Raises:
        UsageError: as `render_objects`.
    """
    return asyncio.run(_differences(_rendered(asked)))


def _rendered(asked: RegionRelease, parts: Sequence[RenderPart] = tuple(RenderPart)) -> _Rendered:
    spec, trusted = read_spec(asked.spec), named_trust(asked.spec.parent)
    fleet = on_clusters(spec)
    if RenderPart.SERVING not in parts and not asked.version:
        asked = _of_any_engine(asked)
    image = asked.image or (spec.engine.image.reference if spec.engine.image else "")
    _require_engine(asked, spec, image)
    release = Release(
        delivery=spec.metadata.name,
        region=region_of(fleet, asked.region),
        version=asked.version,
        digest=asked.digest,
        image=image,
        launch=image_launch(spec, fleet, spec.engine, version=asked.version, digest=asked.digest),
        public_keys=pem_of(trusted_images(trusted)),
        accelerator=str(spec.engine.accelerator),
        accelerators=spec.engine.accelerator_count,
        key_policy=str(spec.engine.compile.mismatch),
    )
    found = region_objects.region_objects(spec, fleet, release, repositories=trusted.trust.engines.images, parts=parts)
    # A promise that nothing in the cluster watches must not go unnoticed.
    for reason in found.left_out:
        note(f"not watched in the cluster: {reason}")
    return _Rendered(fleet, release, found)


def _of_any_engine(asked: RegionRelease) -> RegionRelease:
    """For objects that are the same for every one."""
    nothing = "0" * 64
    return replace(asked, image=f"any@sha256:{nothing}", version="1", digest=nothing)


def _require_engine(asked: RegionRelease, spec: Delivery, image: str) -> None:
    """Which engine it is must be certain.

    Raises:
        UsageError: an image that may be another one tomorrow, no number of a version, weights without a digest.
    """
    if not _PINNED.fullmatch(image) and not (spec.engine.image and spec.engine.image.by_tag):
        image = _said(image)
        raise UsageError(
            f"--image: found {image}; expected REPOSITORY@sha256:DIGEST, as `engine push` prints it",
            hint="`--part setup` and `--part admission` of `render` need none",
        )
    if not _VERSION.fullmatch(asked.version):
        version = _said(asked.version)
        raise UsageError(f"--version: found {version}; expected the number of a model version")
    if spec.engine.image and spec.engine.weights_place.from_registry and not asked.digest:
        raise UsageError(
            "--digest: found none; the engine's weights are brought from the registry and proven against it",
            hint=f"`tidegate model list {spec.model.name} --output json` has it",
        )


def _said(value: str) -> str:
    return repr(value) if value else "none"


async def _foreign_objects(rendered: _Rendered) -> Sequence[ForeignObject]:
    async with cluster_client(rendered.context, rendered.fleet.namespace) as cluster:
        return await foreign_objects(cluster, rendered.found.objects, rendered.release.delivery)


async def _differences(rendered: _Rendered) -> Sequence[ObjectDiff]:
    async with cluster_client(rendered.context, rendered.fleet.namespace) as cluster:
        return await differences(cluster, rendered.found.objects)
