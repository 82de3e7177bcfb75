"""`tidegate rollout`: its commands' names, options and help; what a command does is imported when it is called."""

# click wants the backspace that keeps examples unwrapped, and a command has as many options as it has.
# ruff: noqa: D301, PLR0917

from __future__ import annotations

from typing import Annotated

import typer

from rollouts.manifests.parts import Part
from tidegate.cli.options import SPEC, As, Output, Spec
from tidegate.cli.rollout_actions_app import actions
from tidegate.cli.rollout_looks_app import looks

rollout = typer.Typer(help="The fleet on Kubernetes: what its clusters get, and what their Rollouts do.")
rollout.add_typer(looks)
rollout.add_typer(actions)

Image = Annotated[
    str, typer.Option("--image", help="The engine's image: REPOSITORY@sha256:DIGEST.", show_default=False)
]
Version = Annotated[str, typer.Option("--version", help="The model version's number.", show_default=False)]
ModelDigest = Annotated[str, typer.Option("--digest", help="The model version's digest, to be noted on its pods.")]
Region = Annotated[str | None, typer.Option("--region", help="Of the spec; may be left out when there is one.")]


@rollout.command("render")
def render(
    image: Image,
    version: Version,
    spec: Spec = SPEC,
    region: Region = None,
    digest: ModelDigest = "",
    part: Annotated[
        Part | None, typer.Option("--part", help="What an administrator applies once, or what each delivery applies.")
    ] = None,
    against: Annotated[
        bool, typer.Option("--against", help="Refuse, with exit 2, where the cluster has objects of others instead.")
    ] = False,
    output: As = Output.TEXT,
) -> int:
    """Print every object that a region needs to serve an engine, as YAML for `kubectl apply`.

    Reads the spec only: asks no registry, no cluster but with --against, and changes nothing.

    \b
    Examples:
      tidegate rollout render --region eu-west-1 --version 7 --image registry.example.com/support-llm@sha256:...
      tidegate rollout render delivery.yaml --part setup --version 7 --image registry.example.com/support-llm@sha256:...
    """
    from tidegate.cli.commands.rollout_render import Asked, run

    parts = tuple(Part) if part is None else (part,)
    asked = Asked(region, image, version, digest)
    return run(spec, asked, parts, against=against, as_json=output is Output.JSON)


@rollout.command("diff")
def diff(
    image: Image,
    version: Version,
    spec: Spec = SPEC,
    region: Region = None,
    digest: ModelDigest = "",
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 when anything differs.")] = False,
    output: As = Output.TEXT,
) -> int:
    """Show what applying a region's objects would change in its cluster, and which of its objects are left over.

    Asks the region's API server for dry runs; changes nothing.

    \b
    Examples:
      tidegate rollout diff --region eu-west-1 --version 7 --image registry.example.com/support-llm@sha256:...
      tidegate rollout diff --exit-code --version 7 --image registry.example.com/support-llm@sha256:...
    """
    from tidegate.cli.commands.rollout_diff import run
    from tidegate.cli.commands.rollout_render import Asked

    asked = Asked(region, image, version, digest)
    return run(spec, asked, exit_code=exit_code, as_json=output is Output.JSON)
