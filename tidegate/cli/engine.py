"""`tidegate engine`: builds engines, and shows and pushes their images."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option, Typer

from tidegate.cli.options import SPEC, Insecure, Spec, opened_registry
from tidegate.cli.settings import Output, given, prints
from tidegate.core.errors import UsageError

if TYPE_CHECKING:
    from engine_images.adapters.oci_push import Transfer

engine = Typer(name="engine", help="Engines and their images: build, show, push.")

SignKey = Annotated[Path | None, Option("--sign-key", help="Private key (ECDSA P-256, PEM) to sign the image with.")]


@engine.command("build")
@prints(Output.JSON, Output.YAML)
def build(
    model: Annotated[str, Argument(help="models:/NAME/VERSION or models:/NAME@ALIAS.", show_default=False)],
    spec: Spec = SPEC,
    base: Annotated[
        str | None,
        Option(metavar="IMAGE", help="Base image: a layout's PATH[:NAME], or REGISTRY/REPOSITORY@DIGEST."),
    ] = None,
    layout: Annotated[
        Path | None,
        Option(metavar="FOLDER", help="OCI layout to write the image to; default: images in --state."),
    ] = None,
    weights: Annotated[bool, Option("--weights", help="Put the weights into the image.")] = False,
    sign_key: SignKey = None,
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
    from engine_images.adapters.environment import find_engine_environment
    from engine_images.adapters.oci_build import base_at, pack_engine, require_base_for, this_platform
    from engine_images.adapters.oci_read import docker_access
    from engine_images.build.model import as_data, in_lines
    from engine_images.signature import SigningKey
    from pipelines.adapters.engines import local_engines, require_machine_for
    from pipelines.adapters.specs import read_spec
    from pipelines.state import StateFolder
    from registry.conventions import name_and_reference

    # Before minutes of compiling: a name that means no version, a key or a base that cannot be read.
    name, reference = name_and_reference(model)
    key = SigningKey(_read_key(sign_key)) if sign_key else None
    beneath = base_at(base, this_platform(), docker_access(insecure=insecure)) if base else None
    delivery, state = read_spec(spec), StateFolder(given().state)
    require_machine_for(delivery.engine)
    if beneath:
        require_base_for(beneath, find_engine_environment(delivery.engine.accelerator.platform), given().note)
    registry = opened_registry()
    version = registry.adopt(name, reference)
    engines = local_engines(delivery, state, registry)
    order, built = asyncio.run(engines.build(version, given().note))
    place, tag, packed = layout or state.images, f"{version.name}:{version.version}", None
    lines = [f"engine  {built.engine}{', found' if built.found else ''}", f"at      {built.root}"]
    if beneath:
        image = pack_engine(place, tag, beneath, order, built, with_weights=weights, key=key)
        packed = {"name": f"{place}:{tag}", "digest": image.digest, "size": image.size}
        lines.append(f"image   {place}:{tag}, {image.digest}")
    given().show(as_data(built) | {"image": packed}, *lines, *in_lines(built.record))
    return 0


@engine.command("push")
@prints(Output.JSON, Output.YAML)
def push(
    layout: Annotated[str, Argument(help="PATH[:NAME] of an OCI layout.", show_default=False)],
    reference: Annotated[str, Argument(help="REGISTRY/REPOSITORY:TAG to push to.", show_default=False)],
    sign_key: SignKey = None,
    mark: Annotated[
        bool, Option("--mark", help="Record the image on its model version, for clusters to serve.")
    ] = False,
    insecure: Insecure = False,
) -> int:
    """Push an engine from a layout to an image registry; logged in by `docker login`.

    A push that broke off continues. What the registry has is not sent again, layers of a base in the same registry
    are mounted, and the image appears once all of it is there. Moves the tag, and with --mark sets
    `tidegate.engine.image` on the model version; changes nothing on this machine.

    \b
    Examples:
      tidegate engine push layout:support-llm:7 registry.example/team/support-llm:7 --mark
      tidegate engine push layout 127.0.0.1:5000/support-llm:7 --sign-key engine.key --output json
    """
    from engine_images.adapters.oci_layout import image_in_layout
    from engine_images.adapters.oci_push import push_image, sign_image
    from engine_images.adapters.oci_read import docker_access
    from engine_images.errors import BrokenImage
    from engine_images.oci.reading import read_engine
    from engine_images.oci.reference import ImageReference
    from engine_images.signature import SigningKey
    from registry.conventions import ENGINE_IMAGE

    stored, target = image_in_layout(layout), ImageReference.parse(reference)
    image, _ = stored.manifest()
    # Before anything is sent: a key that cannot be read would leave an image without its signature.
    key = SigningKey(_read_key(sign_key)) if sign_key else None
    served = read_engine(stored).engine.model
    registry = version = None
    if mark:
        registry = opened_registry()
        version = registry.resolve(served.name, served.version)
        if version.digest != served.digest:
            raise BrokenImage(
                f"{layout} serves other files than those registered as {version.uri}",
                hint="build it from this registry",
            )
    access = docker_access(insecure=insecure)
    pushed = push_image(stored, image, target, access, _tell, _wait)
    signature = sign_image(image, target, key, access, _wait) if key else None
    if registry and version:
        registry.mark(version, {ENGINE_IMAGE: pushed.reference})
        given().note(f"{version.uri} is served from it")
    given().show(pushed.model_dump(mode="json") | {"signature": signature}, pushed.reference)
    return 0


@engine.command("show")
@prints(Output.JSON, Output.YAML)
def show(
    image: Annotated[
        str, Argument(help="PATH[:NAME] of an OCI layout, or REGISTRY/REPOSITORY:TAG.", show_default=False)
    ],
    key: Annotated[
        Path | None, Option("--key", help="Public key (PEM) of the builder: verify the signatures by it.")
    ] = None,
    insecure: Insecure = False,
) -> int:
    """Show an engine's layers, launch and compile key, and with --key whose it is. Changes nothing.

    Fetches no large layer. With --key, exits with 2 unless both the engine's manifest and the image's digest are signed
    by it. A layout has no place for the second: prove an image in its registry.

    \b
    Examples:
      tidegate engine show .tidegate/images:support-llm:7
      tidegate engine show registry.example/team/support-llm:7 --key engine.pub --output json
    """
    from engine_images.adapters.oci_read import docker_access, opened
    from engine_images.oci.reading import contents_of, prove_image, read_engine
    from tidegate.core.text import aligned

    public, signed, lines = _read_key(key) if key else None, {}, list[str]()
    with opened(image, docker_access(insecure=insecure)) as images:
        if public:
            found, by, image_by = prove_image(images, {str(key): public})
            signed = {"signed_by": {"manifest": by, "image": image_by}}
            files = "the model's files, the compile cache, vLLM's arguments"
            whole = "everything: base, entrypoint, first process, user, variables, every layer"
            rows = [("engine's manifest", f"signed by {by}", files), ("image", f"signed by {image_by}", whole)]
            lines = ["", *aligned(rows)]
        else:
            found = read_engine(images)
    given().show(found.model_dump(mode="json") | {"size": found.size} | signed, *contents_of(found), *lines)
    return 0


def _read_key(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def _tell(transfer: Transfer) -> None:
    from tidegate.core.text import in_bytes

    so_far = transfer.done < transfer.size
    how = f"{in_bytes(transfer.done)} of " if so_far else f"{transfer.how}, "
    given().note(f"{transfer.title}: {how}{in_bytes(transfer.size)}")


def _wait(seconds: float) -> None:
    given().note(f"the registry is away; next attempt in {seconds:g} s")
    time.sleep(seconds)
