"""Can this model version be served? Every obstacle at once, found in the files and the settings alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from engine_images.checks.model import Obstacle
from engine_images.spec import EngineSettings


def problems_of(
    version_folder: Path, settings: EngineSettings, *, machine_bytes: int | None = None
) -> tuple[Obstacle, ...]:
    """Everything that stands in the way of serving the Hugging Face directory `version_folder`; empty when nothing.

    `machine_bytes` is the memory of the machine that serves, where the accelerator is a CPU.
    """
    raise NotImplementedError


def sampling_of(version_folder: Path, settings: EngineSettings) -> Mapping[str, float]:
    """What is used for requests that say nothing: the version's own defaults, changed by the spec's."""
    raise NotImplementedError
