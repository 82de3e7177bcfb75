"""What an engine's memory comes to by arithmetic, before anything is started."""

from __future__ import annotations

from pathlib import Path

from engine_images.adapters.model_version import read_version
from engine_images.checks import servable
from engine_images.memory import Footprint
from engine_images.spec import EngineSettings


def footprint_of(folder: Path, settings: EngineSettings) -> Footprint:
    """What an engine with these settings needs for the Hugging Face directory `folder`, term by term."""
    return servable.footprint_of(read_version(folder), settings)
