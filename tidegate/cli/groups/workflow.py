"""`tidegate workflow`: options and help; what a command does is imported when it is called."""

# click wants the backspace that keeps examples unwrapped, and a command has as many options as it has.
# ruff: noqa: D301, PLR0917

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.options import SPEC, STATE, As, Insecure, Output, Spec, SpecFile, State, Tracking

workflow = typer.Typer(name="workflow", help="Deliveries as Argo Workflows: their template, their runs.")


Context = Annotated[
    str | None, typer.Option(help="Of the kubeconfig: the cluster that runs workflows; default: the current one.")
]


@workflow.command("render")
def render(spec: Spec = SPEC, output: As = Output.TEXT) -> int:
    """Print the WorkflowTemplate of a delivery and what it needs around it, as YAML for `kubectl apply`.

    Reads the spec and the files that it names; asks no cluster and no registry, changes nothing.

    \b
    Examples:
      tidegate workflow render delivery.yaml | kubectl apply -f -
      tidegate workflow render delivery.yaml --output json
    """
    from tidegate.app.clusters.workflows import render_workflow
    from tidegate.cli.output import print_objects

    print_objects(render_workflow(spec), as_json=output is Output.JSON)
    return 0


@workflow.command("submit")
def submit(
    version: Annotated[str, typer.Option(help="Number of the model version.", show_default=False)],
    spec: Spec = SPEC,
    delivery: Annotated[
        str, typer.Option(help="Carry on this delivery, whose workflow was lost, instead of a new one.")
    ] = "",
    apply: Annotated[
        bool, typer.Option("--apply", help="Apply first what `workflow render` prints: the spec as it is here.")
    ] = False,
    context: Context = None,
    state: State = STATE,
    tracking_uri: Tracking = None,
    output: As = Output.TEXT,
) -> int:
    """Start a delivery in the cluster, by the WorkflowTemplate that is there, and print the workflow's name.

    Returns at once. A workflow of the same model that runs is waited for by the cluster. With a tracking URI the
    registry is asked where the version's files are; those on the disk of one machine are refused.

    \b
    Examples:
      tidegate workflow submit delivery.yaml --version 7 --apply
      tidegate workflow submit delivery.yaml --version 7 --delivery 0f3c41d28a1b4c7e9d5f6a7b8c9d0e1f
    """
    from tidegate.app.clusters.workflows import SubmitOptions, submit_workflow
    from tidegate.cli.output import print_json

    submitted = submit_workflow(spec, SubmitOptions(version, delivery, apply, context, state, tracking_uri))
    if output is Output.JSON:
        print_json({"workflow": submitted.name, "namespace": submitted.namespace})
    else:
        print(submitted.name)
    return 0


@workflow.command("image")
def image(
    installed: Annotated[Path, typer.Argument(metavar="FOLDER", help="Into which tidegate was installed.")],
    base: Annotated[
        str,
        typer.Option(
            help="An image with Python of the same version: a layout's PATH[:NAME], or REGISTRY/REPOSITORY@DIGEST.",
            show_default=False,
        ),
    ],
    layout: Annotated[Path, typer.Option(help="OCI layout that gets the image.")] = Path("images"),
    push: Annotated[
        str | None, typer.Option(metavar="REFERENCE", help="Push it there too: REGISTRY/REPOSITORY:TAG.")
    ] = None,
    insecure: Insecure = False,
    whole: Annotated[
        bool, typer.Option("--whole", help="Pack all that is installed, and not only what steps need.")
    ] = False,
    output: As = Output.TEXT,
) -> int:
    """Build the image that steps run in, without a container daemon, and print its name.

    FOLDER is what `pip install --target FOLDER 'tidegate[deliver]'` leaves. Of it the image has what steps need,
    compiled. The libraries are a layer of their own, which most releases share. The same folder gives the same digest.

    \b
    Examples:
      tidegate workflow image installed --base registry.example.com/python@sha256:...
      tidegate workflow image installed --base base-layout --push registry.example.com/tidegate:1
    """
    from tidegate.app.engines.images import ToolchainOptions
    from tidegate.app.wiring.engines.registries import RegistryLogin
    from tidegate.cli.commands.images import build_step_image

    return build_step_image(
        ToolchainOptions(installed, base, layout, push, whole),
        RegistryLogin(insecure),
        as_json=output is Output.JSON,
    )


@workflow.command("watch")
def watch(
    name: Annotated[str, typer.Argument(help="The workflow, as `workflow submit` printed it.")],
    spec: SpecFile = SPEC,
    context: Context = None,
    output: As = Output.TEXT,
) -> int:
    """Tell every step of a workflow as it begins and ends, until the workflow is over. Changes nothing.

    Exits as `deliver` would have.

    \b
    Examples:
      tidegate workflow watch support-llm-7-x2v9k
    """
    from tidegate.app.clusters.workflows import watch_workflow
    from tidegate.cli.views.workflow import print_progress, print_state

    tell = print_state if output is Output.JSON else print_progress
    return int(watch_workflow(name, spec, context, tell).exit_code)
