"""`tidegate engine`: options and help; what a command does is imported when it is called."""

# click wants the backspace that keeps examples unwrapped, and a command has as many options as it has.
# ruff: noqa: D301, PLR0917

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.global_options import given, prints
from tidegate.cli.options import SPEC, Insecure, LoginOptions, Spec, spread
from tidegate.cli.output import Output, say

engine = typer.Typer(name="engine", help="Engines and their images: build, inspect, push, verify.")


Image = Annotated[
    str, typer.Argument(help="PATH[:NAME] of an OCI layout, or REGISTRY/REPOSITORY:TAG.", show_default=False)
]


@engine.command("record")
def engine_record(spec: Spec = SPEC) -> int:
    """Record that the champion is served by the spec's engine, so that a change of it alone can be delivered.

    Deliveries and `fleet up` record it themselves; use it for a champion of an older tidegate. Changes no region.

    \b
    Examples:
      tidegate engine record delivery-as-it-serves.yaml
    """
    from tidegate.app.fleet import record_serving

    say(record_serving(spec, given().state, given().tracking_uri))
    return 0


@engine.command("build")
@prints(Output.JSON, Output.YAML)
def build(
    model: Annotated[str, typer.Argument(help="models:/NAME/VERSION or models:/NAME@ALIAS.", show_default=False)],
    spec: Annotated[Path, typer.Option("-f", "--file", "--spec", help="The delivery's spec.")] = SPEC,
    base: Annotated[
        str | None,
        typer.Option("--base", help="Base image: a layout's PATH[:NAME], or REGISTRY/REPOSITORY@DIGEST."),
    ] = None,
    layout: Annotated[
        Path | None, typer.Option("--layout", help="OCI layout to write the image to; default: images in --state.")
    ] = None,
    weights: Annotated[bool, typer.Option("--weights", help="Put the weights into the image.")] = False,
    sign_key: Annotated[
        Path | None, typer.Option("--sign-key", help="Private key (ECDSA P-256, PEM) to sign the manifest with.")
    ] = None,
    insecure: Insecure = False,
) -> int:
    """Build the engine of a model version, test it, and pack it into an OCI image when there is a base.

    Downloads and verifies every file, checks that it can be served, compiles, starts the result in a fresh process,
    and compares its log-probabilities and speed with eager mode. An engine with the same inputs is not built again.
    Writes below --state, and two tags on the model version: the engine's digest and the test results.

    \b
    Examples:
      tidegate engine build models:/support-llm/7
      tidegate engine build models:/support-llm@challenger --base vllm-layout --weights --sign-key engine.key
    """
    from pipelines.adapters.registry_login import RegistryLogin
    from tidegate.app.engines.build import EngineBuildOptions
    from tidegate.cli.commands.engine_build import build_engine

    request = EngineBuildOptions(
        model=model,
        spec=spec,
        state=given().state,
        tracking_uri=given().tracking_uri,
        base=base,
        layout=layout,
        with_weights=weights,
        sign_key=sign_key,
    )
    return build_engine(request, RegistryLogin(insecure), output=given().output)


@engine.command("base")
@prints(Output.JSON, Output.YAML)
def base_image(
    base: Annotated[
        str,
        typer.Argument(
            metavar="BASE",
            help="Image with the operating system and a C compiler: a layout's PATH[:NAME], or "
            "REGISTRY/REPOSITORY@DIGEST.",
            show_default=False,
        ),
    ],
    layout: Annotated[Path, typer.Option("--layout", help="OCI layout to write the image to.")] = Path("images"),
    push: Annotated[
        str | None, typer.Option(metavar="REFERENCE", help="Also push the image: REGISTRY/REPOSITORY:TAG.")
    ] = None,
    insecure: Insecure = False,
) -> int:
    """Build the base image of engines, without a container daemon, and print its name.

    Packs the engine environment that `tidegate setup` made here (TIDEGATE_ENGINE_HOME) and its Python, at the same
    paths: engines that are built on this machine find it there. The same environment gives the same digest.

    \b
    Examples:
      tidegate engine base registry.example.com/debian-gcc@sha256:... --push registry.example.com/engine-base:1
      tidegate engine base debian-layout --layout images
    """
    from pipelines.adapters.registry_login import RegistryLogin
    from tidegate.cli.commands.images import build_engine_base

    return build_engine_base(base, layout, push, RegistryLogin(insecure), output=given().output)


@engine.command("inspect")
@spread
@prints(Output.JSON, Output.YAML)
def inspect(*, image: Image, login: LoginOptions) -> int:
    """Show an engine's layers, launch, compile key and files; fetches no large layer. Changes nothing.

    \b
    Examples:
      tidegate engine inspect .tidegate/engines/support-llm
      tidegate engine inspect registry.example/team/support-llm:7 --output json
    """
    from tidegate.cli.commands.images import show_image
    from tidegate.cli.engine_images import login_of

    return show_image(image, login_of(login, image), output=given().output)


@engine.command("push")
@spread
@prints(Output.JSON, Output.YAML)
def push(
    *,
    layout: Annotated[str, typer.Argument(help="PATH[:NAME] of an OCI layout.", show_default=False)],
    reference: Annotated[str, typer.Argument(help="REGISTRY/REPOSITORY:TAG to push to.", show_default=False)],
    sign_key: Annotated[
        Path | None, typer.Option("--sign-key", help="Private key (ECDSA P-256, PEM) to sign the image with.")
    ] = None,
    mark: Annotated[
        bool, typer.Option("--mark", help="Record the image on its model version, for clusters to serve.")
    ] = False,
    login: LoginOptions,
) -> int:
    """Push an engine from a layout to an image registry, with its SBOM.

    A push that broke off continues. What the registry has is not sent again, layers of a base in the same registry
    are mounted, and the image appears once all of it is there. Moves the tag, and with --mark sets
    `tidegate.engine.image` on the model version; changes nothing on this machine.

    \b
    Examples:
      tidegate engine push layout:support-llm:7 registry.example/team/support-llm:7 --mark
      tidegate engine push layout 127.0.0.1:5000/support-llm:7 --sign-key engine.key --output json
    """
    from pipelines.adapters.stores import open_registry
    from tidegate.cli.commands.images import push_engine
    from tidegate.cli.engine_images import login_of

    access = login_of(login, reference)
    marks = open_registry(given().state, given().tracking_uri) if mark else None
    return push_engine(layout, reference, access, sign_key, marks, output=given().output)


@engine.command("verify")
@spread
@prints(Output.JSON, Output.YAML)
def verify(
    *,
    image: Image,
    key: Annotated[Path, typer.Option("--key", help="Public key (PEM) of the builder.")],
    login: LoginOptions,
) -> int:
    """Verify the signatures of an engine's image, and print what each covers. Changes nothing.

    In a registry, both the engine's manifest and the image's digest must be signed. A layout has no place for the
    second: there the entrypoint, the first process and the user are compared with what this tidegate puts in an image.

    \b
    Examples:
      tidegate engine verify registry.example/team/support-llm:7 --key engine.pub
    """
    from tidegate.cli.commands.images import verify_image
    from tidegate.cli.engine_images import login_of

    return verify_image(image, key, login_of(login, image), output=given().output)
