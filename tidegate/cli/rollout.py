"""`tidegate rollout`: a delivery's objects in Kubernetes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option, Typer

from rollouts.manifests.conventions import RenderPart
from tidegate.cli.options import SPEC, Namespace, RegionOfSpec, Spec
from tidegate.cli.settings import Output, given, print_objects, prints, say
from tidegate.core.errors import ExitCode, UsageError
from tidegate.core.model import Json
from tidegate.core.text import failure_line, json_of

if TYPE_CHECKING:
    from rollouts.manifests.manifest import Release
    from rollouts.manifests.spec import ArgoFleetSpec

rollout = Typer(name="rollout", help="The Kubernetes objects of a delivery.")

Version = Annotated[str, Option(metavar="NUMBER", help="Model version; needed for objects of the part serving.")]
Image = Annotated[
    str, Option(metavar="REPOSITORY@DIGEST", help="The engine's image; default: the spec's `engine.image`.")
]
Digest = Annotated[str, Option(metavar="SHA256", help="Digest of the model version, as `model list` prints it.")]
RenderAs = Literal["objects", "workflow", "argo-ignore"]
GUARD_RETRY_SECONDS = 60.0
"""For a way back that nobody answers; what was begun goes on with the next look."""


@rollout.command("render")
@prints(Output.JSON, Output.YAML, Output.NAME)
def render(
    spec: Spec = SPEC,
    form: Annotated[RenderAs, Option("--as", help="What to print.")] = "objects",
    version: Version = "",
    image: Image = "",
    region: RegionOfSpec = None,
    digest: Digest = "",
    part: Annotated[
        list[RenderPart] | None,
        Option(metavar="PART", help="Only this: setup, which an administrator applies, or serving; repeatable."),
    ] = None,
) -> int:
    """Print all objects that a region needs to serve an engine, as YAML for `kubectl apply`.

    Or with `--as workflow` the delivery as an Argo WorkflowTemplate and what it needs; with `argo-ignore` what keeps
    Argo CD from writing back what deliveries write, for the `spec` of its Application. Reads the spec only: asks no
    registry and no cluster, and changes nothing.

    \b
    Examples:
      tidegate rollout render --region eu-west-1 --version 7 --image registry.example.com/support-llm@sha256:...
      tidegate rollout render delivery.yaml --region eu-west-1 --part setup
      tidegate rollout render delivery.yaml --as workflow | kubectl apply -f -
      tidegate rollout render delivery.yaml --as argo-ignore
    """
    if form != "objects":
        of_engine = {"version": version, "image": image, "region": region, "digest": digest, "part": part}
        for name, value in of_engine.items():
            if value:
                raise UsageError(f"--{name}: only with --as objects", hint="leave it out")
        if form == "workflow":
            from pipelines.adapters.specs import read_delivery
            from pipelines.workflow.render import blueprint_of, rendered

            print_objects(rendered(blueprint_of(read_delivery(spec), spec)), given().output)
        else:
            _print_ignored(spec)
        return ExitCode.DELIVERED
    from pipelines.adapters.specs import read_spec, region_of
    from pipelines.plan.region_objects import guard_image
    from rollouts.manifests.render import beside
    from rollouts.manifests.theirs_spec import TheirsFleetSpec

    read = read_spec(spec)
    if isinstance(read.fleet, TheirsFleetSpec):
        # Rights and the guard, beside objects that are not tidegate's own.
        there = region_of(read.fleet, region)
        services = read.arm_services(there).values()
        objects: Sequence[Json] = beside(read.metadata.name, read.fleet, there, guard_image(read), services)
    else:
        parts = [each for each in RenderPart if not part or each in part]
        *_, objects = _objects(spec, region, parts, version=version, image=image, digest=digest)
    print_objects(objects, given().output)
    return ExitCode.DELIVERED


def _print_ignored(spec_path: Path) -> None:
    from pipelines.adapters.specs import on_clusters, read_spec
    from pipelines.plan.region_objects import rendering
    from rollouts.manifests import gitops
    from rollouts.manifests.theirs_spec import TheirsFleetSpec
    from rollouts.model import Engine
    from tidegate.core.yaml_text import yaml_text

    if given().output is Output.NAME:
        raise UsageError("-o name: found --as argo-ignore; expected text, json or yaml")
    spec = read_spec(spec_path)
    name = spec.metadata.name
    if isinstance(spec.fleet, TheirsFleetSpec):
        delivered = gitops.delivered_by_reference(spec.fleet)
    else:
        fleet = on_clusters(spec)
        # Neither names nor fields depend on the engine.
        engine = Engine(version="0", digest="", model=name, image="none")
        objects = (each for region in fleet.regions for each in rendering(spec, fleet, region)(engine))
        delivered = gitops.delivered_objects(objects)
    settings = gitops.argo_cd_settings(delivered)
    given().show(
        settings,
        f"# For the `spec` of the Application that has objects of {name} which deliveries write.",
        "# Objects of `--part setup` are not among them: Git owns those.",
        *yaml_text(settings).splitlines(),
    )


@rollout.command("diff")
@prints(Output.JSON, Output.YAML)
def diff(
    spec: Spec = SPEC,
    version: Version = "",
    image: Image = "",
    region: RegionOfSpec = None,
    digest: Digest = "",
    exit_code: Annotated[bool, Option("--exit-code", help="Exit with 1 when anything differs.")] = False,
) -> int:
    """Show what applying a region's objects would change in its cluster.

    Sends dry runs to the API server; changes nothing.

    \b
    Examples:
      tidegate rollout diff --region eu-west-1 --version 7 --image registry.example.com/support-llm@sha256:...
      tidegate rollout diff --exit-code --version 7 --image registry.example.com/support-llm@sha256:...
    """
    from pipelines.adapters.fleets import cluster_client
    from rollouts.manifests.diff import DiffState, ObjectDiff, differences

    fleet, release, objects = _objects(spec, region, tuple(RenderPart), version=version, image=image, digest=digest)

    async def ask() -> Sequence[ObjectDiff]:
        async with cluster_client(fleet.regions[release.region].context, fleet.namespace) as cluster:
            return await differences(cluster, objects)

    found = asyncio.run(ask())
    lines: list[str] = []
    for each in found:
        line = f"{each.kind} {each.name}: {each.state}"
        match each.state:
            case DiffState.NOT_OURS:
                lines.append(each.text)
            case DiffState.REFUSED:
                lines.append(f"{line}; {each.text}")
            case DiffState.CHANGED:
                lines += [line, *(f"  {part}" for part in each.text.splitlines())]
            case _:
                # New ones by name only: `tidegate rollout render` prints them.
                lines.append(line)
    given().show([each.model_dump(mode="json") for each in found], *lines)
    states = {each.state for each in found}
    if DiffState.NOT_OURS in states:
        return ExitCode.USAGE
    if DiffState.REFUSED in states:
        return ExitCode.OUTSIDE
    return ExitCode.ROLLED_BACK if exit_code and states - {DiffState.SAME} else ExitCode.DELIVERED


def _objects(
    spec_path: Path, region: str | None, parts: Sequence[RenderPart], *, version: str, image: str, digest: str
) -> tuple[ArgoFleetSpec, Release, Sequence[Json]]:
    """The objects of a region, of what they are, and where they belong; promises that nothing there watches are noted.

    Raises:
        UsageError: no such region, no fleet of clusters, an image that may be another one tomorrow.
    """
    from pipelines.adapters.specs import on_clusters, read_spec, region_of
    from pipelines.adapters.trust import named_trust, trusted_images
    from pipelines.authority.engine_images import pem_of
    from pipelines.plan.region_objects import region_objects, release_of

    spec, trusted = read_spec(spec_path), named_trust(spec_path.parent)
    fleet = on_clusters(spec)
    release = release_of(
        spec,
        fleet,
        region_of(fleet, region),
        version=version,
        image=image,
        digest=digest,
        public_keys=pem_of(trusted_images(trusted)),
        repositories=trusted.trust.engines.images,
        serving=RenderPart.SERVING in parts,
    )
    found = region_objects(spec, fleet, release, parts=parts)
    for reason in found.left_out:
        given().note(f"not watched in the cluster: {reason}")
    return fleet, release, found.objects


@rollout.command("guard", hidden=True)
def guard(
    name: Annotated[str, Argument(help="Name of the delivery, which its Rollout has too.")],
    region: Annotated[str, Option(help="Region, for the lines of output.")],
    namespace: Namespace = None,
    place: Annotated[
        str, Option("--place", metavar="JSON", help="What the spec's `fleet` says of it, as it is rendered.")
    ] = "{}",
    probes: Annotated[
        int | None, Option("--probes", min=0, max=65535, help="Answer /healthz and /readyz on this port.")
    ] = None,
) -> int:
    """Roll back a trial of this cluster that no process has carried for too long; checks every 10 s.

    Runs in each region's cluster, from the set-up part of `rollout render`, until it is stopped. Needs no spec and no
    MLflow. A trial is rolled back when its Lease was not renewed for `fleet.unattended`, and was seen unchanged for
    30 s; a Rollout without a Lease, or with a version of another writer, is not touched.

    \b
    Examples:
      tidegate rollout guard support-llm --region eu-west-1
      tidegate rollout guard support-llm --region eu-west-1 --context eu-west-1 --place '{"traffic": "istio"}'
    """
    from pipelines.adapters.fleets import cluster_client, probed
    from rollouts.cluster.guard import Guard
    from rollouts.cluster.model import RegionConfig
    from rollouts.cluster.peers import RoutePlace
    from tidegate.core.clock import SystemClock
    from tidegate.core.process import cancelled_by_signals

    said = {"name": name, "region": region, "retry_seconds": GUARD_RETRY_SECONDS}
    try:
        said |= json_of(place)
        there = RoutePlace.model_validate(said) if "reference" in said else RegionConfig.model_validate(said)
    except (TypeError, ValueError) as error:
        raise UsageError(f"--place: {failure_line(error)}", hint="as `tidegate rollout render` prints it") from error
    context, clock = given().context, SystemClock()

    async def keep_guard() -> None:
        # Each look asks once: a server that was away in the middle of a look must not pass for one that was there.
        async with cluster_client(context, namespace, retry_seconds=0) as cluster:
            guard = Guard(there, cluster, clock, say)
            async with (
                probed(probes, lambda: guard.problem),
                cancelled_by_signals("the next guard goes on with what was begun"),
            ):
                await guard.run()

    with suppress(asyncio.CancelledError):
        asyncio.run(keep_guard())
    return ExitCode.DELIVERED
