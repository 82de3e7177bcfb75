"""Puts the engine where vLLM runs it: a folder with the model as `model` and a compile cache that can be written.

vLLM's key of the compile cache contains the model's path. So the model is always `model`, relative to the
folder in which vLLM starts, wherever its files are.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from .exits import BadSettings, OutsideMissing
from .manifest import CACHE_FOLDER, MODEL_FOLDER

PID_FILE = "pid"


def make_run_folder(run: Path) -> None:
    """An empty folder that only we can read, with our process id in it.

    Raises:
        BadSettings: it is another user's.
        OutsideMissing: it cannot be made.
    """
    try:
        run.mkdir(parents=True, exist_ok=True)
        if run.stat().st_uid != os.getuid():
            raise BadSettings(f"{run} belongs to another user; give another folder to --run")
        run.chmod(0o700)
        (run / PID_FILE).write_text(f"{os.getpid()}\n", encoding="ascii")
    except OSError as error:
        raise cannot_write(run, error) from error


def link_model(run: Path, model: Path) -> None:
    """Make `run/model` lead to the model's files."""
    link = run / MODEL_FOLDER
    link.unlink(missing_ok=True)
    link.symlink_to(model.resolve(), target_is_directory=True)


def copy_cache(run: Path, cache: Path, paths: Iterable[str]) -> Path:
    """A copy of the compile cache's files that vLLM may write to; returns its folder.

    Raises:
        OutsideMissing: no room for it.
    """
    target = run / CACHE_FOLDER
    try:
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        for path in paths:
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(cache / path, target / path)
    except OSError as error:
        raise cannot_write(target, error) from error
    return target


def cannot_write(target: Path, error: OSError) -> OutsideMissing:
    """The error that says why nothing can be put at `target`."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return OutsideMissing(f"the disk is full: no room for {target}")
    return OutsideMissing(f"{target} cannot be written: {error.strerror}")
