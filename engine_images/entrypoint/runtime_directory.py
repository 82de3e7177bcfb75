"""The runtime directory of an engine: the model as `model`, and a compile cache that vLLM can write to.

vLLM's key of the compile cache contains the model's path. So the model is always `model`, relative to the
folder in which vLLM starts, wherever its files are.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from .journal import BadSettings, OutsideMissing
from .manifest import CACHE_FOLDER, MODEL_FOLDER

MODEL_INFOS_FOLDER = "modelinfos"
"""vLLM's own name for what it has found out about model classes."""

STATE_FILE = "life"
"""Locked for as long as an engine lives in the folder."""


class RuntimeDirectory:
    """A folder that only this engine uses; `with` holds it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> RuntimeDirectory:
        """Take it.

        Raises:
            BadSettings: it is another user's, or another engine runs in it.
            OutsideMissing: it cannot be made.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.folder.stat().st_uid != os.getuid():
                raise BadSettings(f"{self.folder} belongs to another user; give another folder to --run")
            self._life = os.open(self.folder / STATE_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._life, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadSettings(f"another engine runs in {self.folder}; give another folder to --run") from error
        except OSError as error:
            raise cannot_write(self.folder, error) from error
        os.utime(self._life)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._life)

    def link_model(self, model: Path) -> None:
        """Make `model` in this folder lead to the model's files."""
        link = self.folder / MODEL_FOLDER
        link.unlink(missing_ok=True)
        link.symlink_to(model.resolve(), target_is_directory=True)

    def copy_cache(self, cache: Path, paths: Iterable[str]) -> Path:
        """A copy of the compile cache's files that vLLM may write to; returns its folder.

        Raises:
            OutsideMissing: no room for it.
        """
        target = self.folder / CACHE_FOLDER
        try:
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            for path in paths:
                (target / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(cache / path, target / path)
        except OSError as error:
            raise cannot_write(target, error) from error
        return target

    def share_model_infos(self, shared: Path) -> None:
        """Let engines of this machine ask once what kind of model a class is: vLLM starts a process for it, for 8 s.

        An engine that brought the answer keeps its own. vLLM compares the class's source before it believes one.

        Raises:
            OutsideMissing: the folder cannot be made.
        """
        link = self.folder / CACHE_FOLDER / MODEL_INFOS_FOLDER
        if link.exists():
            return
        try:
            shared.mkdir(parents=True, exist_ok=True)
            link.symlink_to(shared.resolve(), target_is_directory=True)
        except OSError as error:
            raise cannot_write(link, error) from error


def is_running(folder: Path) -> bool:
    """Whether an engine runs in that folder now, whatever one has left behind."""
    try:
        with (folder / STATE_FILE).open("rb") as life:
            fcntl.flock(life, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


COMPILED = frozenset({".so", ".cubin", ".o"})
"""Ends of the names of kernels."""
COMPILED_MODEL = "model"
"""How vLLM calls the file of a model that was compiled ahead of time."""


def compiled_files(cache: Path) -> int:
    """How many kernels and compiled models are in a compile cache: a start that had to compile leaves more of them."""
    return sum(file.suffix in COMPILED or file.name == COMPILED_MODEL for file in cache.rglob("*") if file.is_file())


def cannot_write(target: Path, error: OSError) -> OutsideMissing:
    """The error that says why nothing can be put at `target`."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return OutsideMissing(f"the disk is full: no room for {target}")
    return OutsideMissing(f"{target} cannot be written: {error.strerror}")
