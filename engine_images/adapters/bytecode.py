"""Bytecode of an image's modules: where nothing can be written, Python would compile them all at every start.

It has the hash of its source and no time, and the same sources give the same bytes: they are compiled by a process of
its own, in one order, and with one seed, since bytecode depends on both. Python compares the hash at every import,
which costs nothing that could be measured, so that what runs is what a reader of the sources sees.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from engine_images.errors import BrokenImage

COMPILE = """
import sys
from py_compile import PycInvalidationMode, PyCompileError, compile

for line in sys.stdin.read().splitlines():
    source, place, target = line.split("\\t")
    try:
        compile(source, target, place, doraise=True, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
    except (PyCompileError, SyntaxError, ValueError):
        continue  # Such as a template: whoever imports it meets the error.
"""


def with_bytecode(files: Mapping[str, Path], folder: Path) -> dict[str, Path]:
    """The files, by their absolute places in the image, and the bytecode of all modules among them.

    `folder` gets the bytecode.

    Raises:
        BrokenImage: Python could not be run.
    """
    made = {place: _cached(place) for place in sorted(files) if place.endswith(".py")}
    targets = {cached: folder / cached.lstrip("/") for cached in made.values()}
    lines = [f"{files[place]}\t{place}\t{targets[cached]}" for place, cached in made.items()]
    environment = {"PATH": os.environ.get("PATH", ""), "PYTHONHASHSEED": "0"}
    ended = subprocess.run(
        [sys.executable, "-s", "-S", "-c", COMPILE], input="\n".join(lines), env=environment, text=True, check=False
    )
    if ended.returncode != 0:
        raise BrokenImage(f"{sys.executable} could not compile the modules", hint="its own words stand above")
    return {**files, **{cached: path for cached, path in targets.items() if path.exists()}}


def _cached(place: str) -> str:
    path = PurePosixPath(place)
    return str(path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc")
