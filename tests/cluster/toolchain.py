"""The image in which a workflow's steps run, made of this checkout by `tidegate workflow image`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cluster.engine.image import ROOT, pins
from e2e.machine import TIDEGATE


def push_toolchain(base: str, work: Path, target: str) -> str:
    """Install tidegate with the extra of its steps into a folder, pack it, push it; the image by digest."""
    installed, layout = work / "installed", work / "toolchain"
    constraints = work / "steps-constraints.txt"
    constraints.write_text(pins(), encoding="utf-8")
    uv = [Path(sys.executable).with_name("uv"), "pip", "install", "--quiet", "--python", sys.executable]
    install = [*uv, "--target", installed, "--constraints", constraints, f"{ROOT}[deliver,server]"]
    # Sessions of their own, as commands have: Linux shares a busy machine among sessions, and this one has all users.
    subprocess.run(install, check=True, start_new_session=True)
    words = [
        "workflow",
        "image",
        str(installed),
        "--base",
        base,
        "--layout",
        str(layout),
        "--push",
        target,
        "--insecure",
    ]
    done = subprocess.run([TIDEGATE, *words], capture_output=True, text=True, check=False, start_new_session=True)
    assert done.returncode == 0, done.stderr
    repository, _, digest = done.stdout.strip().partition("@")
    return f"{repository.rpartition(':')[0]}@{digest}"
