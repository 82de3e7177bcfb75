"""What an image gets of this machine: its platform, an engine that was built here, the environment that builds them."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from engine_images.adapters.oci_build import (
    build_image,
    contents_in,
    distribution_files,
    every_file,
    installed_packages,
    require_environment,
)
from engine_images.adapters.oci_layout import OciLayout, split_layout
from engine_images.build.model import BuildRequest, BuiltEngine
from engine_images.errors import BrokenImage
from engine_images.manifest import ENTRYPOINT_FOLDER, ROOT
from engine_images.model import EngineEnvironment
from engine_images.oci.entrypoint_files import PACKAGE
from engine_images.oci.model import Base, Descriptor, Platform, Runtime
from engine_images.oci.toolchain import STEPS, PackingList, missing_folder, packed_distributions
from engine_images.sbom import sbom_of
from engine_images.signature import SigningKey
from engine_images.spec import EngineSettings
from tidegate.core.adapters.extras import extras as known_extras
from tidegate.core.errors import UsageError

GO_NAMES = {"x86_64": "amd64", "aarch64": "arm64"}
"""How images name what Python calls a machine."""


def this_platform() -> Platform:
    """What images that are built on this machine run on."""
    return Platform(architecture=GO_NAMES.get(platform.machine(), platform.machine()))


def image_in_layout(source: str) -> tuple[OciLayout, Descriptor]:
    """The image of a layout on this disk that is called `PATH[:NAME]`.

    Raises:
        BrokenImage: no layout is there, or it has no such image.
    """
    found = split_layout(source)
    if found is None:
        raise BrokenImage(
            f"{source} is no OCI layout", hint="name FOLDER:NAME of what `tidegate engine build --layout` wrote"
        )
    layout = OciLayout(found[0])
    return layout, layout.manifest(found[1])


def require_base_for(settings: EngineSettings, base: Base, tell: Callable[[str], None]) -> None:
    """Look whether engines of these settings find the environment that they are built with in a base.

    Raises:
        BrokenImage: they do not.
        EnvironmentMissing: there is none here to build with.
    """
    # What makes an environment is no part of the core.
    from engine_images.adapters.environment import find_engine_environment

    environment = find_engine_environment(settings.accelerator.platform)
    if not require_environment(base, environment):
        tell(f"the base does not tell what it has; an engine needs vLLM {environment.vllm} at {environment.python}")


def pack_engine(
    layout: Path,
    name: str,
    base: Base,
    order: BuildRequest,
    built: BuiltEngine,
    *,
    with_weights: bool,
    key: SigningKey | None,
) -> Descriptor:
    """Put an engine on its base, with the SBOM of the environment that it was built in; `name` names the image."""
    sbom = sbom_of(installed_packages(order.environment.site_packages), order.model)
    contents = contents_in(built.root, with_weights=with_weights, sbom=sbom)
    # The first process is the entrypoint, on the Python of the engine environment that the base has.
    runtime = Runtime(
        entrypoint=(order.environment.python, "-m", PACKAGE, "serve"),
        environment={"PYTHONPATH": f"{ROOT}/{ENTRYPOINT_FOLDER}", "PYTHONSAFEPATH": "1"},
        workdir=ROOT,
    )
    return build_image(OciLayout(layout), name=name, base=base, contents=contents, runtime=runtime, key=key)


def environment_made_here() -> EngineEnvironment:
    """The engine environment that `tidegate setup` made on this machine.

    Raises:
        EnvironmentMissing: there is none.
        UsageError: the one in use is somebody else's.
    """
    from engine_images.adapters.environment import find_engine_environment
    from engine_images.adapters.found_environment import PYTHON_VARIABLE

    if os.environ.get(PYTHON_VARIABLE):
        raise UsageError(
            f"{PYTHON_VARIABLE} names an environment that tidegate did not make",
            hint="the image that it is from is its base; unset the variable to pack the one of `tidegate setup`",
        )
    return find_engine_environment()


def toolchain_files(installed: Path, *, whole: bool, extras: tuple[str, ...] = ()) -> Mapping[str, Path]:
    """Tidegate as it is installed in a folder: the `whole` of it, or what steps and `extras` need.

    Raises:
        BrokenImage: no such folder, or something of it was not installed there.
        UsageError: no such extra.
    """
    if not installed.is_dir():
        raise missing_folder(installed)
    if whole:
        return every_file(installed)
    if unknown := set(extras) - known_extras().keys():
        raise UsageError(f"--extra {min(unknown)}: expected one of {', '.join(sorted(known_extras()))}")
    needs = PackingList.read(STEPS)
    needs = replace(needs, extras=(*needs.extras, *extras))
    return distribution_files(installed, lambda requires: packed_distributions(needs, requires), leaves=needs.leaves)
