"""Engines that were built on this machine, and what was compiled for them: found again by their digests.

engines/<engine>/root/          as `/engine` in an image
engines/<engine>/record.json    what the build measured; written last: without it there is no engine
compiled/<name>/cache/          a compile cache, shared by all versions of an architecture
compiled/<name>/compiled.json   the start that made it; written last
work/<name>/                    logs of the starts of a build
locks/                          one for each; whoever wants the same waits
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from engine_images.build.model import Built, Compiled, Record
from engine_images.oci.model import canonical

Progress = Callable[[str], None]
Kept = TypeVar("Kept", Record, Compiled)

POLL_SECONDS = 0.2
"""Between two tries of a lock that another process holds."""

RECORD_FILE = "record.json"
COMPILED_FILE = "compiled.json"
ROOT_FOLDER = "root"
CACHE_FOLDER = "cache"


class Shelf:
    """One folder of a machine; several processes may use it at once."""

    def __init__(self, folder: Path) -> None:
        """Made when something is put on it."""
        self._folder = folder.absolute()

    def engine(self, engine: str) -> Path:
        """The folder of an engine, there or not yet."""
        return self._folder / "engines" / engine

    def root(self, engine: str) -> Path:
        """The folder that is `/engine` in an image."""
        return self.engine(engine) / ROOT_FOLDER

    def folder(self, name: str) -> Path:
        """For what a build needs on its way: logs, and folders of engines that were started to prove something."""
        return self._folder / "work" / name

    def find(self, engine: str) -> Built | None:
        """The engine, if all of it is there."""
        record = _read(self.engine(engine) / RECORD_FILE, Record)
        return Built(engine=engine, root=self.root(engine), record=record, found=True) if record else None

    def keep(self, record: Record) -> Built:
        """From now on the engine is found."""
        _write(self.engine(record.engine) / RECORD_FILE, record)
        return Built(engine=record.engine, root=self.root(record.engine), record=record, found=False)

    def cache(self, name: str) -> Path:
        """The folder of a compile cache, there or not yet."""
        return self._folder / "compiled" / name / CACHE_FOLDER

    def compiled(self, name: str) -> Compiled | None:
        """What is known of a compile cache, if all of it is there."""
        return _read(self.cache(name).parent / COMPILED_FILE, Compiled)

    def keep_compiled(self, name: str, compiled: Compiled, cache: Path) -> None:
        """Move the folder `cache` here; from now on it is found."""
        target = self.cache(name)
        shutil.rmtree(target.parent, ignore_errors=True)
        target.parent.mkdir(parents=True)
        shutil.move(cache, target)
        _write(target.parent / COMPILED_FILE, compiled)

    def forget_compiled(self, name: str) -> None:
        """It was found not to be one: the next build compiles anew."""
        shutil.rmtree(self.cache(name).parent, ignore_errors=True)

    @asynccontextmanager
    async def only_one(self, name: str, what: str, progress: Progress) -> AsyncIterator[None]:
        """Whoever makes `name` is alone with it; another process that wants it waits, and tells `progress` so.

        The kernel frees the lock however its holder dies.
        """
        path = self._folder / "locks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            if not _locked(file.fileno()):
                progress(f"waiting for another process that {what}")
                while not _locked(file.fileno()):
                    await asyncio.sleep(POLL_SECONDS)
            yield


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(path: Path, kind: type[Kept]) -> Kept | None:
    """None as well for what another version of tidegate wrote: it is built anew."""
    try:
        return kind.model_validate(json.loads(path.read_bytes()))
    except (FileNotFoundError, ValidationError, json.JSONDecodeError):
        return None


def _write(path: Path, value: Record | Compiled) -> None:
    part = path.with_suffix(".part")
    part.write_bytes(canonical(value.model_dump(mode="json")) + b"\n")
    part.replace(path)
