"""`tidegate workflow`: deliveries as Argo Workflows."""

# click wants the backspace that keeps examples unwrapped, and a command has as many options as it has.
# ruff: noqa: D301, PLR0917

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.global_options import given, prints
from tidegate.cli.options import SPEC, Insecure, Spec
from tidegate.cli.output import Output, print_data
from tidegate.core.errors import ExitCode

workflow = typer.Typer(name="workflow", help="Deliveries as Argo Workflows.")


@workflow.command("submit")
@prints(Output.JSON, Output.YAML)
def submit(
    version: Annotated[str, typer.Option(metavar="NUMBER", help="Number of the model version.", show_default=False)],
    spec: Spec = SPEC,
    delivery: Annotated[str, typer.Option(metavar="ID", help="Continue this delivery, whose workflow was lost.")] = "",
    apply: Annotated[
        bool, typer.Option("--apply", help="First apply what `rollout render --as workflow` prints.")
    ] = False,
) -> int:
    """Start a delivery in the cluster by its WorkflowTemplate, and print the workflow's name.

    Returns at once; the cluster runs one workflow of a model at a time. `argo watch NAME` and `tidegate status` follow
    it. With a tracking URI, a version whose files lie on the disk of one machine is refused.

    \b
    Examples:
      tidegate workflow submit delivery.yaml --version 7 --apply
      tidegate workflow submit delivery.yaml --version 7 --delivery 0f3c41d28a1b4c7e9d5f6a7b8c9d0e1f
    """
    from pipelines.adapters.fleets import cluster_client
    from pipelines.adapters.specs import read_delivery
    from pipelines.workflow import runs
    from pipelines.workflow.render import blueprint_of, rendered
    from tidegate.planning import require_files_for_pods

    runs.require_number(version)
    blueprint = blueprint_of(read_delivery(spec), spec)
    if uri := given().tracking_uri:
        require_files_for_pods(blueprint.spec, version, given().state, uri)

    async def send() -> str:
        async with cluster_client(given().context, blueprint.namespace) as cluster:
            return await runs.submit(cluster, blueprint, version, delivery, rendered(blueprint) if apply else ())

    name = asyncio.run(send())
    if given().output.is_data:
        print_data({"workflow": name, "namespace": blueprint.namespace}, given().output)
    else:
        print(name)
    return ExitCode.DELIVERED


@workflow.command("image", hidden=True)
@prints(Output.JSON, Output.YAML)
def image(
    installed: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder into which tidegate was installed.")],
    base: Annotated[
        str,
        typer.Option(
            help="Base image with the same version of Python: a layout's PATH[:NAME], or REGISTRY/REPOSITORY@DIGEST.",
            show_default=False,
        ),
    ],
    layout: Annotated[Path, typer.Option(help="OCI layout to write the image to.")] = Path("images"),
    push: Annotated[
        str | None, typer.Option(metavar="REFERENCE", help="Also push the image: REGISTRY/REPOSITORY:TAG.")
    ] = None,
    insecure: Insecure = False,
    whole: Annotated[
        bool, typer.Option("--whole", help="Pack all that is installed, not only what steps need.")
    ] = False,
    extra: Annotated[
        list[str] | None,
        typer.Option(help="Also pack what this extra needs, such as s3, gcs or azure; repeatable."),
    ] = None,
) -> int:
    """Build the image that steps run in, without a container daemon, and print its name.

    FOLDER is what `uv pip install --target FOLDER '.[deliver,server]'` leaves in a clone. The image gets what steps
    need of it, compiled, with the libraries in a layer of their own. The same folder gives the same digest.

    \b
    Examples:
      tidegate workflow image installed --base registry.example.com/python@sha256:...
      tidegate workflow image installed --base base-layout --push registry.example.com/tidegate:1
    """
    from engine_images.adapters.oci_build import base_at, build_toolchain
    from engine_images.adapters.oci_layout import OciLayout
    from engine_images.adapters.oci_read import docker_access
    from engine_images.adapters.packing import this_platform, toolchain_files
    from engine_images.oci.reference import ImageReference
    from tidegate import __version__
    from tidegate.cli.engine import print_packed

    target, access = ImageReference.parse(push) if push else None, docker_access(insecure=insecure)
    # Before a registry is asked for anything.
    files = toolchain_files(installed, whole=whole, extras=tuple(extra or ()))
    beneath, stored, name = base_at(base, this_platform(), access), OciLayout(layout), f"tidegate:{__version__}"
    packed = build_toolchain(stored, name=name, base=beneath, files=files)
    return print_packed(stored, name, packed, target, access)
