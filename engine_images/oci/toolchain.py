"""tidegate itself as an image: what a workflow's steps run in. Pure.

base          the operating system and Python
libraries     what tidegate needs, and what they require: the same for many releases
tidegate      our own packages, and the command
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from engine_images.errors import BrokenImage
from engine_images.oci.compose import PlannedLayer
from engine_images.oci.model import Base, Runtime

US = "tidegate"
STEPS = Path(__file__).parent / "steps.toml"


@dataclass(frozen=True)
class PackingList:
    """A list such as `steps.toml`."""

    extras: tuple[str, ...]
    without: frozenset[str]
    leaves: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path) -> PackingList:
        """The list in a file of ours."""
        said = tomllib.loads(path.read_text(encoding="utf-8"))
        return cls(tuple(said["extras"]), frozenset(said["without"]), tuple(said["leaves"]))


INSTALL = "in a clone: `uv pip install --target {folder} '.[deliver,server]'`"


def missing(what: str) -> BrokenImage:
    """The refusal of a folder into which somebody forgot to install something."""
    hint = f"{INSTALL.format(folder='FOLDER')}, with any other extra that was asked for"
    return BrokenImage(f"{what} is not in that folder", hint=hint)


def missing_folder(folder: Path) -> BrokenImage:
    """The refusal of a folder that is not there."""
    return BrokenImage(f"{folder} is no folder", hint=INSTALL.format(folder=folder))


def packed_distributions(packing: PackingList, requires: Mapping[str, Iterable[str]]) -> frozenset[str]:
    """The names of the distributions to pack, tidegate among them; `requires` is what each installed one needs.

    Raises:
        BrokenImage: one of them is not installed.
    """
    found: set[str] = set()
    left = [(US, "steps.toml")]
    while left:
        name, wanted_by = left.pop()
        if name in found or name in packing.without:
            continue
        if name not in requires:
            raise missing(f"{name}, which {wanted_by} needs,")
        found.add(name)
        extras = ("", *packing.extras) if name == US else ("",)
        needed = (each for each in map(Requirement, requires[name]) if _applies(each, extras))
        left += [(canonicalize_name(each.name), name) for each in needed]
    return frozenset(found)


def _applies(requirement: Requirement, extras: Iterable[str]) -> bool:
    """On this platform, with any of the extras."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)


HOME = "/opt/tidegate"
COMMAND = f"{HOME}/bin/tidegate"
PACKAGES = frozenset({"tidegate", "pipelines", "rollouts", "gates", "registry", "engine_images", "slo"})
USER = "10001"
LAUNCHER = b"""#!/usr/bin/env python3
import sys

from tidegate.cli import main

sys.exit(main())
"""
"""The one that pip writes names the Python of the machine on which it was installed."""


def toolchain_layers(installed: Mapping[str, Path]) -> tuple[PlannedLayer, PlannedLayer]:
    """The layers of a folder into which tidegate was installed; files by their places in it.

    Raises:
        BrokenImage: tidegate is not among them.
    """
    if "tidegate/cli/__init__.py" not in installed:
        raise missing("tidegate")
    ours = {place: path for place, path in installed.items() if _is_ours(place)}
    libraries = {f"{HOME}/{place}": path for place, path in installed.items() if place not in ours}
    tool = {f"{HOME}/{place}": path for place, path in ours.items()}
    return (
        PlannedLayer(title="libraries", files=libraries),
        PlannedLayer(title="tidegate", files={**tool, COMMAND: LAUNCHER}),
    )


def toolchain_runtime(base: Base) -> Runtime:
    """`tidegate` as the first process, found by its name too, as no privileged user."""
    variables = {
        "PATH": f"{HOME}/bin:{base.search_path}",
        "PYTHONPATH": HOME,
        "PYTHONSAFEPATH": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return Runtime(entrypoint=("tidegate",), environment=variables, user=USER)


def _is_ours(place: str) -> bool:
    top = PurePosixPath(place).parts[0]
    return top in PACKAGES or (top.startswith("tidegate-") and top.endswith(".dist-info"))
