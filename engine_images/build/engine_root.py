"""An engine's files on this machine, laid out as in an image, and the command that starts them."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from engine_images.build.model import BuildRequest
from engine_images.entrypoint.manifest import digest_of
from engine_images.entrypoint.runtime_directory import STATE_FILE, is_running
from engine_images.errors import EnvironmentMissing
from engine_images.manifest import (
    CACHE_FOLDER,
    ENTRYPOINT_FOLDER,
    MANIFEST_FILE,
    MODEL_FOLDER,
    Digests,
    EngineManifest,
)
from engine_images.model import LaunchCommand
from engine_images.oci.compose import manifest_bytes
from engine_images.oci.entrypoint_files import PACKAGE, entrypoint_files

PORT = "{port}"
"""Stands in a command for the port that the one who starts it picks."""

LEFT_OUT = ("*.lock", "*.tmp", "__pycache__", "aotautograd", "fxgraph")
"""What a start from the compiled model never reads; the last two hold addresses of the process that wrote them."""

SETTLED_SECONDS = 60.0
"""After which an engine that starts holds the lock of its folder."""

_OWN_TEMPORARY_FOLDER = "remove it, or set TMPDIR to a folder that only you can write to"

READY_PATH = "/tidegate/ready"
"""Answers 200 once the engine has answered its own warm-up."""


def write_root(root: Path, manifest: EngineManifest, model: Path, cache: Path | None) -> None:
    """Lay an engine out at `root`; `model` and `cache` are linked to, not copied."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    for path, file in entrypoint_files().items():
        target = root / ENTRYPOINT_FOLDER / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    (root / MODEL_FOLDER).symlink_to(model.resolve(), target_is_directory=True)
    if cache is not None:
        (root / CACHE_FOLDER).symlink_to(cache.resolve(), target_is_directory=True)
    (root / MANIFEST_FILE).write_bytes(manifest_bytes(manifest))


def serve(
    request: BuildRequest,
    root: Path,
    run: Path,
    *,
    threads: int | None = None,
    model_infos: Path | None = None,
    samples: Path | None = None,
    known_as: str | None = None,
    arguments: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
) -> LaunchCommand:
    """How to start the engine at `root`.

    Args:
        request: what it was built from.
        root: as `/engine` in an image.
        run: the process' own folder; `{port}` in it is replaced like the port itself.
        threads: for computing on a CPU; all cores when None.
        model_infos: a folder that engines share; with it an engine without a compile cache starts 8 s sooner.
        samples: the file in which a delivery says what to keep of users' requests.
        known_as: by what name that file knows the engine; its model version when None.
        arguments: added to vLLM's.
        environment: added to the process'.
    """
    options = ["--root", str(root), "--run", str(run), "--host", "127.0.0.1", "--port", PORT, "--logs", "text"]
    if threads is not None:
        options += ["--threads", str(threads)]
    if model_infos is not None:
        options += ["--model-infos", str(model_infos)]
    if samples is not None:
        options += ["--samples", str(samples)]
    if known_as is not None:
        options += ["--known-as", known_as]
    extra = list(arguments)
    return LaunchCommand(
        command=(request.environment.python, "-m", PACKAGE, "serve", *options, *(["--", *extra] if extra else [])),
        environment={**import_path(root), **(environment or {})},
        workdir=str(root),
        memory_bytes=request.memory_bytes,
    )


def digests_of(folder: Path) -> Digests:
    """SHA-256 of every file below `folder`, by relative path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): digest_of(path) for path in files}


def tidy_cache(cache: Path) -> None:
    """Remove what no start ever reads."""
    for pattern in LEFT_OUT:
        for path in list(cache.rglob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def sweep(runs: Path) -> None:
    """Remove the folders of engines that have ended. One that starts just now is older than no minute."""
    for life in runs.glob(f"*/{STATE_FILE}"):
        if time.time() - life.stat().st_mtime > SETTLED_SECONDS and not is_running(life.parent):
            shutil.rmtree(life.parent, ignore_errors=True)


def fixed_run_folder(name: str) -> Path:
    """The folder in which `name` is compiled: its path goes into the compiled files, so it must always be the same.

    Raises:
        EnvironmentMissing: somebody else made the folder above it first, or may write there. Anyone who can exchange
            what is compiled decides what is called proven, and what is signed.
    """
    parent = Path(tempfile.gettempdir(), f"tidegate-{os.getuid()}")
    try:
        parent.mkdir(mode=0o700, exist_ok=True)
        found = parent.lstat()
    except OSError as error:
        raise EnvironmentMissing(f"{parent}: {error.strerror}", hint=_OWN_TEMPORARY_FOLDER) from error
    if not stat.S_ISDIR(found.st_mode):
        raise EnvironmentMissing(f"{parent} is a link or a file; expected a folder of ours", hint=_OWN_TEMPORARY_FOLDER)
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise EnvironmentMissing(
            f"{parent} belongs to user {found.st_uid} with mode {stat.S_IMODE(found.st_mode):04o}; "
            f"expected user {os.getuid()} alone (0700)",
            hint=_OWN_TEMPORARY_FOLDER,
        )
    return parent / name[:16]


def import_path(root: Path) -> dict[str, str]:
    """Variables: import the entrypoint, and nothing from the folder that a process starts in."""
    return {"PYTHONPATH": str(root / ENTRYPOINT_FOLDER), "PYTHONSAFEPATH": "1"}
