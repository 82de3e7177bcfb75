"""Images that are made here: on which base, in which layout on this disk, and on their way to a registry."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from engine_images.adapters.oci_build import (
    base_at,
    build_environment,
    build_image,
    build_toolchain,
    contents_in,
    distribution_files,
    every_file,
    installed_packages,
    require_environment,
)
from engine_images.adapters.oci_layout import OciLayout, split_layout
from engine_images.adapters.oci_push import attach_sbom, push_image, sign_image
from engine_images.adapters.oci_read import InLayout
from engine_images.build.model import BuildRequest, BuiltEngine
from engine_images.errors import BrokenImage
from engine_images.model import EngineEnvironment
from engine_images.oci.model import Base, Descriptor, Platform, Runtime
from engine_images.oci.reading import Images
from engine_images.oci.reference import ImageReference
from engine_images.oci.toolchain import STEPS, PackingList, missing_folder, packed_distributions
from engine_images.oci.transfers import PushResult, Transfer
from engine_images.sbom import sbom_of
from engine_images.signature import SigningKey
from engine_images.spec import EngineSettings
from pipelines.adapters.registry_login import RegistryLogin
from tidegate.core.adapters.extras import extras as known_extras
from tidegate.core.errors import UsageError
from tidegate.core.process import note

GO_NAMES = {"x86_64": "amd64", "aarch64": "arm64"}
"""How images name what Python calls a machine."""


def this_platform() -> Platform:
    """What images that are built on this machine run on."""
    return Platform(architecture=GO_NAMES.get(platform.machine(), platform.machine()))


def base_for_this_machine(text: str, login: RegistryLogin) -> Base:
    """What an image for this machine continues; see `base_at`."""
    return base_at(text, this_platform(), login.access)


def require_base_for(settings: EngineSettings, base: Base) -> None:
    """Look whether engines of these settings find the environment that they are built with in a base.

    Raises:
        BrokenImage: they do not.
        EnvironmentMissing: there is none here to build with.
    """
    # What makes an environment is no part of the core.
    from engine_images.adapters.environment import find_engine_environment

    environment = find_engine_environment(settings.accelerator.platform)
    if not require_environment(base, environment):
        note(f"the base does not tell what it has; an engine needs vLLM {environment.vllm} at {environment.python}")


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


@dataclass(frozen=True)
class StoredImage:
    """An image of a layout on this disk, which can be sent from there."""

    layout: OciLayout
    descriptor: Descriptor

    @classmethod
    def named(cls, source: str) -> StoredImage:
        """The image called `PATH[:NAME]`.

        Raises:
            BrokenImage: no layout is there, or it has no such image.
        """
        found = split_layout(source)
        if found is None:
            raise BrokenImage(
                f"{source} is no OCI layout", hint="name FOLDER:NAME of what `tidegate engine build --layout` wrote"
            )
        layout = OciLayout(found[0])
        return cls(layout, layout.manifest(found[1]))

    @property
    def images(self) -> Images:
        """To be read."""
        return InLayout(self.layout, self.descriptor.digest)

    def push(
        self, target: ImageReference, login: RegistryLogin, tell: Callable[[Transfer], None] = lambda _: None
    ) -> PushResult:
        """Bring it there; `tell` hears of every blob. See `push_image`."""
        return push_image(self.layout, self.descriptor, target, login.access, tell, _wait_for_registry)

    def attach_sbom(self, sbom: bytes, target: ImageReference, login: RegistryLogin) -> str:
        """Let the SBOM be found next to the pushed image; returns the digest of what was attached."""
        return attach_sbom(self.descriptor, target, sbom, login.access, _wait_for_registry).digest

    def sign(self, key: SigningKey, target: ImageReference, login: RegistryLogin) -> str:
        """Add a signature next to the pushed image; returns its tag."""
        return sign_image(self.descriptor, target, key, login.access, _wait_for_registry)


def _wait_for_registry(seconds: float) -> None:
    note(f"the registry is away; next attempt in {seconds:g} s")
    time.sleep(seconds)


@dataclass(frozen=True)
class ImagePlace:
    """Where an image that is built comes to lie: in a layout, under a name."""

    layout: Path
    name: str

    def __str__(self) -> str:
        return f"{self.layout}:{self.name}"

    def pack_engine(
        self,
        order: BuildRequest,
        built: BuiltEngine,
        base: Base,
        runtime: Runtime,
        *,
        with_weights: bool,
        key: SigningKey | None,
    ) -> Descriptor:
        """Put an engine on its base, with the SBOM of the environment that it was built in."""
        sbom = sbom_of(installed_packages(order.environment.site_packages), order.model)
        contents = contents_in(built.root, with_weights=with_weights, sbom=sbom)
        return build_image(
            OciLayout(self.layout), name=self.name, base=base, contents=contents, runtime=runtime, key=key
        )

    def pack_environment(self, base: Base, environment: EngineEnvironment) -> StoredImage:
        """Put vLLM, torch and their Python on an operating system."""
        layout = OciLayout(self.layout)
        return StoredImage(layout, build_environment(layout, name=self.name, base=base, environment=environment))

    def pack_toolchain(self, base: Base, files: Mapping[str, Path]) -> StoredImage:
        """Put those of `toolchain_files` on their base."""
        layout = OciLayout(self.layout)
        return StoredImage(layout, build_toolchain(layout, name=self.name, base=base, files=files))


def toolchain_files(installed: Path, *, whole: bool, extras: tuple[str, ...] = ()) -> Mapping[str, Path]:
    """Tidegate as it is installed in a folder: the `whole` of it, or what steps and `extras` need.

    Raises:
        BrokenImage: no such folder, or something of it was not installed there.
        UsageError: no such extra.
    """
    if not installed.is_dir():
        raise missing_folder(installed)
    return every_file(installed) if whole else _needed_files(installed, extras)


def _needed_files(installed: Path, extras: tuple[str, ...]) -> Mapping[str, Path]:
    unknown = set(extras) - known_extras().keys()
    if unknown:
        raise UsageError(f"--extra {min(unknown)}: expected one of {', '.join(sorted(known_extras()))}")
    needs = PackingList.read(STEPS)
    needs = replace(needs, extras=(*needs.extras, *extras))
    return distribution_files(installed, lambda requires: packed_distributions(needs, requires), leaves=needs.leaves)
