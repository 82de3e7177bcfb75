"""`tidegate workflow image`: the toolchain that steps run in, as an OCI image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine_images.adapters.oci_build import base_at, build_toolchain, distribution_files, every_file
from engine_images.adapters.oci_layout import OciLayout
from engine_images.adapters.oci_push import push_image
from engine_images.oci.reference import ImageReference
from engine_images.oci.toolchain import STEPS, PackingList, packed_distributions
from tidegate import __version__
from tidegate.cli.engine_images import RegistryLogin, this_platform, wait_for_registry
from tidegate.cli.output import print_json


@dataclass(frozen=True)
class ToolchainOptions:
    """What the person asked for."""

    installed: Path
    base: str
    layout: Path
    push: str | None
    whole: bool
    """Pack all that is installed, and not only what steps need."""


def build_step_image(request: ToolchainOptions, login: RegistryLogin, *, as_json: bool) -> int:
    """Build, and push where a registry is named."""
    target = ImageReference.parse(request.push) if request.push else None
    base = base_at(request.base, this_platform(), login.access)
    layout, name = OciLayout(request.layout), f"tidegate:{__version__}"
    image = build_toolchain(layout, name=name, base=base, files=_files(request))
    pushed = push_image(layout, image, target, login.access, sleep=wait_for_registry).reference if target else None
    if as_json:
        print_json({"image": f"{request.layout}:{name}", "digest": image.digest, "pushed": pushed})
    else:
        print(pushed or f"{request.layout}:{name}, {image.digest}")
    return 0


def _files(request: ToolchainOptions) -> Mapping[str, Path]:
    if request.whole:
        return every_file(request.installed)
    needs = PackingList.read(STEPS)
    return distribution_files(
        request.installed, lambda requires: packed_distributions(needs, requires), leaves=needs.leaves
    )
