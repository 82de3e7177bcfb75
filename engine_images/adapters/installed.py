"""A folder into which distributions were installed: which there are, and which files are whose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath

from packaging.utils import canonicalize_name

from engine_images.oci.packed import missing

LEFT_OUT = frozenset({"__pycache__", "tests"})
"""Folders that nobody imports: what Python made while it ran, and what tests a library."""
SOURCES = (".c", ".cpp", ".f90", ".h", ".pxd", ".pyi", ".pyx")
"""Of what was compiled, and of types: nobody reads them while a program runs."""
US = "tidegate"


def files_of(
    folder: Path, chosen: Callable[[Mapping[str, list[str]]], frozenset[str]], *, leaves: Sequence[str] = ()
) -> dict[str, Path]:
    """Files by their places in the folder: ours, and those of the distributions that `chosen` picks.

    `chosen` gets what each distribution requires; what lies below one of `leaves` stays out.

    Raises:
        BrokenImage: tidegate itself was not installed there.
    """
    there: dict[str, Distribution] = {canonicalize_name(each.name): each for each in distributions(path=[str(folder)])}
    if US not in there:
        raise missing(US)
    wanted = chosen({name: each.requires or [] for name, each in there.items()})
    found: dict[str, Path] = {}
    for name in sorted(wanted | {US}):
        found |= _files(folder, there[name])
    below = tuple(f"{leaf}/" for leaf in leaves)
    found = {place: path for place, path in found.items() if not place.startswith(below)}
    return dict(sorted(found.items()))


def every_file(folder: Path) -> dict[str, Path]:
    """All files by their places in the folder, without what Python makes of them while it runs."""
    found = ((path.relative_to(folder), path) for path in sorted(folder.rglob("*")) if path.is_file())
    return {place.as_posix(): path for place, path in found if "__pycache__" not in place.parts}


def _files(folder: Path, distribution: Distribution) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for file in distribution.files or []:
        place, path = PurePosixPath(file), folder / file
        # A record names scripts by their way out of the folder that it describes.
        out = ".." in place.parts or LEFT_OUT & set(place.parts) or place.suffix in SOURCES
        if not out and path.is_file():
            found[place.as_posix()] = path
    return found
