"""`tidegate workflow`: options and help; what a command does is imported when it is called."""

# click wants the backspace that keeps examples unwrapped, and a command has as many options as it has.
# ruff: noqa: D301, PLR0917

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.global_options import given, prints
from tidegate.cli.options import SPEC, Insecure, Spec
from tidegate.cli.output import Output

workflow = typer.Typer(name="workflow", help="Deliveries as Argo Workflows.")


@workflow.command("render")
@prints(Output.JSON, Output.YAML, Output.NAME)
def render(spec: Spec = SPEC) -> int:
    """Print the WorkflowTemplate of a delivery and all that it needs, as YAML for `kubectl apply`.

    Reads the spec and the files that it names. Asks no cluster and no registry; changes nothing.

    \b
    Examples:
      tidegate workflow render delivery.yaml | kubectl apply -f -
      tidegate workflow render delivery.yaml --output json
    """
    from tidegate.app.clusters.workflows import render_workflow
    from tidegate.cli.output import print_objects

    print_objects(render_workflow(spec), given().output)
    return 0


@workflow.command("submit")
@prints(Output.JSON, Output.YAML)
def submit(
    version: Annotated[str, typer.Option(help="Number of the model version.", show_default=False)],
    spec: Spec = SPEC,
    delivery: Annotated[str, typer.Option(help="Continue this delivery, whose workflow was lost.")] = "",
    apply: Annotated[bool, typer.Option("--apply", help="First apply what `workflow render` prints.")] = False,
) -> int:
    """Start a delivery in the cluster by its WorkflowTemplate, and print the workflow's name.

    Returns at once; the cluster runs one workflow of a model at a time. With a tracking URI, a version whose files
    lie on the disk of one machine is refused.

    \b
    Examples:
      tidegate workflow submit delivery.yaml --version 7 --apply
      tidegate workflow submit delivery.yaml --version 7 --delivery 0f3c41d28a1b4c7e9d5f6a7b8c9d0e1f
    """
    from tidegate.app.clusters.workflows import SubmitOptions, submit_workflow
    from tidegate.cli.output import print_data

    submitted = submit_workflow(
        spec, SubmitOptions(version, delivery, apply, given().context, given().state, given().tracking_uri)
    )
    if given().output.is_data:
        print_data({"workflow": submitted.name, "namespace": submitted.namespace}, given().output)
    else:
        print(submitted.name)
    return 0


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


@workflow.command("watch")
@prints(Output.JSON, Output.YAML)
def watch(
    name: Annotated[str, typer.Argument(help="The workflow, as `workflow submit` printed it.")],
    spec: Spec = SPEC,
) -> int:
    """Print each step of a workflow as it begins and ends, until the workflow ends. Changes nothing.

    Exits as `deliver` would have.

    \b
    Examples:
      tidegate workflow watch support-llm-7-x2v9k
    """
    from tidegate.app.clusters.workflows import watch_workflow
    from tidegate.cli.commands.workflow import print_progress, print_state

    tell = partial(print_state, output=given().output) if given().output.is_data else print_progress
    return int(watch_workflow(name, spec, given().context, tell).exit_code)
