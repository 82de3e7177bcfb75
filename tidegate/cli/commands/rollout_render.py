"""`tidegate rollout render`: the objects of one region, as a cluster would get them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.region_objects import RegionObjects, region_objects
from pipelines.spec import Delivery
from pipelines.trusted_images import pem_of
from rollouts.adapters.kube.connect import connect
from rollouts.cluster.claims import refuse, strangers
from rollouts.kube.model import Json
from rollouts.manifests.parts import Part
from rollouts.manifests.release import Release
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.model import Stranger
from tidegate.cli.compose import read_spec
from tidegate.cli.output import note, print_json
from tidegate.cli.rollout_place import clusters_of, region_of
from tidegate.cli.trusted import trusted_beside, trusted_images
from tidegate.core.clock import SystemClock
from tidegate.core.errors import UsageError
from tidegate.core.yaml_text import yaml_text

_PINNED = re.compile(r"\S+@sha256:[0-9a-f]{64}")
_VERSION = re.compile(r"[1-9][0-9]*")


@dataclass(frozen=True)
class Asked:
    """Which engine, where."""

    region: str | None
    image: str
    version: str
    digest: str


def run(spec_path: Path, asked: Asked, parts: Sequence[Part], *, against: bool, as_json: bool) -> int:
    """Print the objects; talks to nobody, unless it is asked to look at what is `against` them in the cluster.

    Raises:
        NotOurs: somebody else's objects are there; nothing is printed that would take them over.
    """
    spec = read_spec(spec_path)
    fleet, release = placed(spec, asked, keys_beside(spec_path))
    rendered = region_objects(spec, fleet, release, parts=parts)
    tell_left_out(rendered)
    if against:
        refuse(release.region, *asyncio.run(_strangers(rendered.objects, fleet, release)))
    if as_json:
        print_json(rendered.objects)
    else:
        print("".join(f"---\n{yaml_text(each)}" for each in rendered.objects), end="")
    return 0


async def _strangers(objects: Sequence[Json], fleet: ArgoFleetSpec, release: Release) -> tuple[Stranger, ...]:
    context = fleet.regions[release.region].context
    cluster = connect(context or None, clock=SystemClock(), namespace=fleet.namespace)
    try:
        return await strangers(cluster, objects, release.delivery)
    finally:
        await cluster.close()


def tell_left_out(rendered: RegionObjects) -> None:
    """A promise that nothing in the cluster watches must not go unnoticed."""
    for reason in rendered.left_out:
        note(f"not watched in the cluster: {reason}")


def keys_beside(spec_path: Path) -> str:
    """The public keys that the spec's trust file asks for, in PEM."""
    return pem_of(trusted_images(trusted_beside(spec_path.parent)))


def placed(spec: Delivery, asked: Asked, public_keys: str) -> tuple[ArgoFleetSpec, Release]:
    """The fleet, and the engine in the region that is asked for.

    Raises:
        UsageError: no such region, no fleet of clusters, an image that may be another one tomorrow.
    """
    fleet = clusters_of(spec)
    if not _PINNED.fullmatch(asked.image):
        raise UsageError(
            f"--image: found {asked.image!r}; expected REPOSITORY@sha256:DIGEST, as `engine push` prints it"
        )
    if not _VERSION.fullmatch(asked.version):
        raise UsageError(f"--version: found {asked.version!r}; expected the number of a model version")
    release = Release(
        delivery=spec.metadata.name,
        region=region_of(fleet, asked.region),
        version=asked.version,
        digest=asked.digest,
        image=asked.image,
        public_keys=public_keys,
        accelerator=str(spec.engine.accelerator),
        accelerators=spec.engine.accelerator_count,
    )
    return fleet, release
