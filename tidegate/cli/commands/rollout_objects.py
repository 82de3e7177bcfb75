"""`tidegate rollout render` and `diff`: the objects of one region, and what applying them would change."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

from pipelines.adapters.image_engines import pem_of
from pipelines.plan.region_objects import RegionObjects, region_objects
from pipelines.spec.delivery import Delivery
from rollouts.adapters.kube.client import connect
from rollouts.cluster.ownership import foreign_objects, refuse_foreign
from rollouts.kube.model import Json
from rollouts.manifests.conventions import RenderPart
from rollouts.manifests.diff import DiffState, ObjectDiff, differences
from rollouts.manifests.manifest import Release
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.model import ForeignObject
from tidegate.app.process import note
from tidegate.app.wiring.specs import read_spec
from tidegate.app.wiring.trust import trust_next_to, trusted_images
from tidegate.cli.output import OutputForm, print_data, print_objects
from tidegate.cli.rollout_options import ReleaseOptions, clusters_of, region_of
from tidegate.core.clock import SystemClock
from tidegate.core.errors import ExitCode, UsageError

_PINNED = re.compile(r"\S+@sha256:[0-9a-f]{64}")


_VERSION = re.compile(r"[1-9][0-9]*")


def render_objects(asked: ReleaseOptions, parts: Sequence[RenderPart], *, against: bool, output: OutputForm) -> int:
    """Print the objects; talks to nobody, unless it is asked to look at what is `against` them in the cluster.

    Raises:
        NotOurs: somebody else's objects are there; nothing is printed that would take them over.
    """
    spec = read_spec(asked.spec)
    fleet, release = release_of(spec, asked, keys_next_to(asked.spec))
    rendered = region_objects(spec, fleet, release, repositories=repositories_next_to(asked.spec), parts=parts)
    tell_left_out(rendered)
    if against:
        refuse_foreign(release.region, *asyncio.run(_foreign_objects(rendered.objects, fleet, release)))
    print_objects(rendered.objects, output)
    return 0


async def _foreign_objects(
    objects: Sequence[Json], fleet: ArgoFleetSpec, release: Release
) -> tuple[ForeignObject, ...]:
    context = fleet.regions[release.region].context
    cluster = connect(context or None, clock=SystemClock(), namespace=fleet.namespace)
    try:
        return await foreign_objects(cluster, objects, release.delivery)
    finally:
        await cluster.close()


def tell_left_out(rendered: RegionObjects) -> None:
    """A promise that nothing in the cluster watches must not go unnoticed."""
    for reason in rendered.left_out:
        note(f"not watched in the cluster: {reason}")


def keys_next_to(spec_path: Path) -> str:
    """The public keys that the spec's trust file asks for, in PEM."""
    return pem_of(trusted_images(trust_next_to(spec_path.parent)))


def repositories_next_to(spec_path: Path) -> tuple[str, ...]:
    """The repositories that the spec's trust file lets engines come from; any when there are none."""
    return trust_next_to(spec_path.parent).trust.engines.images


def release_of(spec: Delivery, asked: ReleaseOptions, public_keys: str) -> tuple[ArgoFleetSpec, Release]:
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


def diff_objects(asked: ReleaseOptions, *, exit_code: bool, output: OutputForm) -> int:
    """Ask the cluster for dry runs, and print what would be other than it is."""
    spec = read_spec(asked.spec)
    fleet, release = release_of(spec, asked, keys_next_to(asked.spec))
    rendered = region_objects(spec, fleet, release, repositories=repositories_next_to(asked.spec))
    tell_left_out(rendered)
    found = asyncio.run(_differences(rendered.objects, fleet.regions[release.region].context, fleet.namespace))
    if output.is_data:
        print_data([each.model_dump(mode="json") for each in found], output)
    else:
        print("\n".join(line for each in found for line in _diff_lines(each)))
    return _exit_code(found, exit_code=exit_code)


async def _differences(objects: Sequence[Json], context: str, namespace: str) -> tuple[ObjectDiff, ...]:
    cluster = connect(context or None, clock=SystemClock(), namespace=namespace)
    try:
        return await differences(cluster, objects)
    finally:
        await cluster.close()


def _diff_lines(found: ObjectDiff) -> list[str]:
    """New objects by name only: `tidegate rollout render` prints them."""
    if found.state is DiffState.NOT_OURS:
        return [found.text]
    line = f"{found.kind} {found.name}: {found.state}"
    if found.state is DiffState.REFUSED:
        return [f"{line}; {found.text}"]
    return [line, *(f"  {each}" for each in found.text.splitlines())] if found.state is DiffState.CHANGED else [line]


def _exit_code(found: Sequence[ObjectDiff], *, exit_code: bool) -> int:
    states = {each.state for each in found}
    if DiffState.NOT_OURS in states:
        return ExitCode.USAGE
    if DiffState.REFUSED in states:
        return ExitCode.OUTSIDE
    return ExitCode.ROLLED_BACK if exit_code and states - {DiffState.SAME} else ExitCode.DELIVERED
