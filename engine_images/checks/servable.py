"""Can this model version be served? Reads its files, starts nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from engine_images.adapters.version_folder import read_version
from engine_images.checks.model import Obstacle
from engine_images.checks.obstacles import obstacles
from engine_images.checks.version import GENERATION_FILE
from engine_images.errors import CannotBeServed
from engine_images.sampling import sampling_defaults
from engine_images.spec import EngineSettings


def problems_of(
    version_folder: Path, settings: EngineSettings, *, machine_bytes: int | None = None
) -> tuple[Obstacle, ...]:
    """Everything that stands in the way of serving the Hugging Face directory `version_folder`; empty when nothing.

    `machine_bytes` is the memory of the machine that serves, where the accelerator is a CPU; of this one by default.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if machine_bytes is None else machine_bytes
    return tuple(obstacles(read_version(version_folder), settings, machine_bytes=machine))


def refuse(found: Sequence[Obstacle], version: str) -> None:
    """Return when there are no obstacles.

    Raises:
        CannotBeServed: one line for each.
    """
    if found:
        raise CannotBeServed("\n".join(f"{version}: {obstacle}" for obstacle in found))


def sampling_of(version_folder: Path, settings: EngineSettings) -> Mapping[str, float]:
    """What is used for requests that say nothing: the version's own defaults, changed by the spec's."""
    return sampling_defaults(read_version(version_folder).document(GENERATION_FILE), settings.sampling)
