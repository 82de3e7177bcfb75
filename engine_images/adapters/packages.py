"""What is installed: the distributions of a folder or an environment, and the packages of the operating system.

Python's are read from their own metadata: no other Python is started.
"""

from __future__ import annotations

import ctypes.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath

from packaging.utils import canonicalize_name

from engine_images.oci.toolchain import missing
from engine_images.sbom import Package
from tidegate.core.errors import OutsideError

LEFT_OUT = frozenset({"__pycache__", "tests"})
"""Folders that nobody imports: what Python made while it ran, and what tests a library."""
SOURCES = (".c", ".cpp", ".f90", ".h", ".pxd", ".pyi", ".pyx")
"""Of what was compiled, and of types: nobody reads them while a program runs."""
US = "tidegate"


def distribution_files(
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


Progress = Callable[[str], None]


def missing_packages() -> list[str]:
    """The packages that must be installed before a delivery can run on this machine."""
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    present = {
        "prometheus": shutil.which("prometheus") is not None,
        # vLLM compiles the model with g++ against Python's headers, also when it finds the result in its cache.
        "g++": shutil.which("g++") is not None,
        f"{python}-dev": Path(sysconfig.get_path("include"), "Python.h").exists(),
        "libnuma1": ctypes.util.find_library("numa") is not None,
    }
    return [package for package, found in present.items() if not found]


def ensure_system_packages(progress: Progress) -> None:
    """Install what is missing, as root or with a `sudo` that asks for no password.

    Raises:
        OutsideError: something is missing and cannot be installed from here; the hint is the command to run.
    """
    missing = missing_packages()
    if not missing:
        return
    by_hand = f"run: sudo apt-get install -y {' '.join(missing)}"
    apt = _apt()
    if apt is None:
        raise OutsideError(f"{', '.join(missing)} missing on this machine", hint=by_hand)
    progress(f"installing {', '.join(missing)} with apt-get")
    for step in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *missing]):
        done = subprocess.run([*apt, *step], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise OutsideError(f"apt-get could not install {', '.join(missing)}", hint=by_hand, detail=done.stdout)


def _apt() -> list[str] | None:
    """How to call apt-get here without asking a person, or None."""
    if shutil.which("apt-get") is None:
        return None
    environment = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]
    if os.geteuid() == 0:
        return environment
    # -n: a password prompt in the middle of `make` would be met by nobody.
    sudo = shutil.which("sudo")
    if sudo and subprocess.run([sudo, "-n", "true"], capture_output=True, check=False).returncode == 0:
        return [sudo, "-n", *environment]
    return None
