"""Brings what comes from the distribution and not from Python: Debian's and Ubuntu's packages, by apt-get."""

from __future__ import annotations

import ctypes.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

from tidegate.core.errors import OutsideError

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
