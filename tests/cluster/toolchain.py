"""The image in which a workflow's steps run, made of this checkout as its Containerfile says, without a builder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from cluster.engine.image import ROOT, append_layer, pins, push

from engine_images.adapters.oci_build import base_at, this_platform
from engine_images.adapters.oci_layout import OciLayout
from engine_images.oci.model import Descriptor, Runtime

HOME = "/opt/tidegate"
LAUNCHER = """#!/usr/bin/env python3
from tidegate.cli import main
raise SystemExit(main())
"""
"""The one that pip writes names the Python of this machine."""


def push_toolchain(base: str, work: Path, target: str) -> str:
    """Install tidegate with the extras of its steps into a folder, pack it, push it; the image by digest."""
    installed, layout = work / "installed", OciLayout(work / "toolchain")
    constraints = work / "steps-constraints.txt"
    constraints.write_text(pins(), encoding="utf-8")
    uv = [Path(sys.executable).with_name("uv"), "pip", "install", "--quiet", "--python", sys.executable]
    install = [*uv, "--target", installed, "--constraints", constraints, f"{ROOT}[deliver,server]"]
    # Sessions of their own, as commands have: Linux shares a busy machine among sessions, and this one has all users.
    subprocess.run(install, check=True, start_new_session=True)
    repository, _, digest = push(layout, pack(layout, base, installed), target).partition("@")
    return f"{repository.rpartition(':')[0]}@{digest}"


def pack(layout: OciLayout, base: str, installed: Path) -> Descriptor:
    """The image of what is installed in a folder, on the base `LAYOUT:NAME`."""
    (installed / "bin").mkdir(exist_ok=True)
    (installed / "bin/tidegate").write_text(LAUNCHER, encoding="utf-8")
    (installed / "bin/tidegate").chmod(0o755)
    # A pod with a read-only root would compile all of it at every start. Templates among the modules do not compile.
    compiling = [sys.executable, "-m", "compileall", "-qq", "-j", "0", "--invalidation-mode", "unchecked-hash"]
    subprocess.run([*compiling, "-s", installed, "-p", HOME, installed], check=False, start_new_session=True)
    found = {f"{HOME}/{path.relative_to(installed)}": path for path in installed.rglob("*") if path.is_file()}
    said = [line.partition(" ")[::2] for line in (ROOT / "Containerfile").read_text(encoding="utf-8").splitlines()]
    below = base_at(base, this_platform())
    before, words = below.config.get("config") or {}, dict(said)
    config = {**below.config, "config": {**before, "User": words["USER"]}}
    variables = dict(text.split("=", 1) for word, text in said if word == "ENV")
    variables["PATH"] = variables["PATH"].replace("$PATH", below.variables.get("PATH", os.defpath))
    return append_layer(
        layout,
        "tidegate",
        below.model_copy(update={"config": config}),
        found,
        Runtime(entrypoint=tuple(json.loads(words["ENTRYPOINT"])), environment=variables),
        executable=frozenset(place for place, path in found.items() if os.access(path, os.X_OK)),
    )
