"""Servers and files that all processes of a test run share: made by the first that needs one, gone with the run."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tidegate.core.files import file_lock

FOLDER = "TIDEGATE_TEST_SHARED"
"""Set by the process that was started first, for those that it starts: where these servers are written down."""


_BEGUN: list[subprocess.Popen[bytes]] = []
"""By this process. Kept: Python complains of a process that is forgotten while it runs."""


def shared(name: str, start: Callable[[Path], tuple[subprocess.Popen[bytes], str]]) -> str:
    """The address of the server of that name; `start` it in a folder, with a process that leads its group."""
    folder = _folder()
    note = folder / f"{name}.json"
    with file_lock(folder / f"{name}.lock"):
        if not note.exists():
            process, address = start(folder / name)
            _BEGUN.append(process)
            note.write_text(json.dumps({"pid": process.pid, "address": address}))
        found: str = json.loads(note.read_text())["address"]
        return found


def shared_file(name: str, make: Callable[[Path], object]) -> Path:
    """The file of that name, which nobody changes; `make` it once for a run."""
    folder = _folder()
    with file_lock(folder / f"{name}.lock"):
        if not (folder / name).exists():
            make(folder / f"new-{name}")
            (folder / f"new-{name}").rename(folder / name)
        return folder / name


def _folder() -> Path:
    if FOLDER not in os.environ:  # a program of its own uses a fake
        begin_sharing()
        atexit.register(end_sharing)
    return Path(os.environ[FOLDER])


def begin_sharing() -> None:
    """Once for a run, before its processes are started."""
    os.environ[FOLDER] = tempfile.mkdtemp(prefix="tidegate-shared-")


def end_sharing() -> None:
    """End every server, when no test needs one any more."""
    folder = Path(os.environ.pop(FOLDER))
    for note in folder.glob("*.json"):
        with suppress(ProcessLookupError):
            os.killpg(json.loads(note.read_text())["pid"], signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)
