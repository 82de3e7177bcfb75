"""The Python distributions of an environment, read from its own metadata: its Python is not started."""

from __future__ import annotations

from importlib.metadata import Distribution, distributions
from pathlib import Path

from engine_images.sbom import Package

LONGEST_LICENCE = 80
"""Some projects put the whole text of their licence where its name belongs."""


def installed_packages(home: Path) -> tuple[Package, ...]:
    """What is installed in the environment `home`, by name."""
    folders = [str(folder) for folder in sorted((home / "lib").glob("python3.*/site-packages"))]
    found = {distribution.metadata["Name"]: distribution for distribution in distributions(path=folders)}
    return tuple(
        Package(name=name, version=found[name].version, licence=_licence(found[name])) for name in sorted(found)
    )


def _licence(distribution: Distribution) -> str:
    written = (distribution.metadata.get_all(field) for field in ("License-Expression", "License"))
    said = next((lines[0].strip() for lines in written if lines), "")
    return said if len(said) <= LONGEST_LICENCE and "\n" not in said and said != "UNKNOWN" else ""
