"""Engines that were built on this machine, and what was compiled for them: found again by their digests.

engines/<engine>/root/          as `/engine` in an image
engines/<engine>/record.json    what the build measured; written last: without it there is no engine
compiled/<name>/cache/          a compile cache, shared by all versions of an architecture
compiled/<name>/compiled.json   the start that made it; written last
work/<name>/                    logs of the starts of a build
locks/                          one for each; the one who wants the same waits
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from engine_images.build.model import BuildRecord, BuiltEngine
from engine_images.build.proof import EngineStart
from engine_images.oci.model import canonical
from tidegate.core.files import lock_open_file, replace_file

Progress = Callable[[str], None]
Kept = TypeVar("Kept", BuildRecord, EngineStart)

POLL_SECONDS = 0.2
"""Between two tries of a lock that another process holds."""

RECORD_FILE = "record.json"
COMPILED_FILE = "compiled.json"
ROOT_FOLDER = "root"
CACHE_FOLDER = "cache"


class EngineStore:
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

    def work_folder(self, name: str) -> Path:
        """For what a build needs on its way: logs, and folders of engines that were started to prove something."""
        return self._folder / "work" / name

    def find(self, engine: str) -> BuiltEngine | None:
        """The engine, if all of it is there."""
        record = _read(self.engine(engine) / RECORD_FILE, BuildRecord)
        return BuiltEngine(engine=engine, root=self.root(engine), record=record, found=True) if record else None

    def keep(self, record: BuildRecord) -> BuiltEngine:
        """From now on the engine is found."""
        _write(self.engine(record.engine) / RECORD_FILE, record)
        return BuiltEngine(engine=record.engine, root=self.root(record.engine), record=record, found=False)

    def cache(self, name: str) -> Path:
        """The folder of a compile cache, there or not yet."""
        return self._folder / "compiled" / name / CACHE_FOLDER

    def compiled(self, name: str) -> EngineStart | None:
        """The cold start that made a compile cache, if all of it is there."""
        return _read(self.cache(name).parent / COMPILED_FILE, EngineStart)

    def keep_compiled(self, name: str, cold: EngineStart, cache: Path) -> None:
        """Move the folder `cache` that this start made here; from now on it is found."""
        target = self.cache(name)
        shutil.rmtree(target.parent, ignore_errors=True)
        target.parent.mkdir(parents=True)
        shutil.move(cache, target)
        _write(target.parent / COMPILED_FILE, cold)

    def drop_compiled(self, name: str) -> None:
        """It was found not to be one: the next build compiles again."""
        shutil.rmtree(self.cache(name).parent, ignore_errors=True)

    @asynccontextmanager
    async def locked(self, name: str, what: str, progress: Progress) -> AsyncIterator[None]:
        """Anyone who makes `name` is alone with it; another process that wants it waits, and tells `progress` so.

        The kernel frees the lock however its holder dies.
        """
        path = self._folder / "locks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            if not lock_open_file(file):
                progress(f"waiting for another process that {what}")
                while not lock_open_file(file):
                    await asyncio.sleep(POLL_SECONDS)
            yield


def _read(path: Path, kind: type[Kept]) -> Kept | None:
    """None as well for what another version of tidegate wrote: it is built again."""
    try:
        return kind.model_validate(json.loads(path.read_bytes()))
    except (FileNotFoundError, ValidationError, json.JSONDecodeError):
        return None


def _write(path: Path, value: BuildRecord | EngineStart) -> None:
    replace_file(path, canonical(value.model_dump(mode="json")) + b"\n")
