"""What a delivery needs beside its events, kept with them: its spec, the files that this names, its transcripts.

A process that goes on with a delivery may run on another machine, where neither the spec nor the evidence is.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Protocol

from pipelines.ports import Ledger
from pipelines.spec import Delivery
from pipelines.trials import FOLDER as EVIDENCE
from pipelines.vouched import Vouched, proven
from tidegate.core.errors import UsageError

SPEC = "spec"
"""Of a delivery's folder and of its artifacts: the spec and the files it names, as they lay beside each other."""


class KeptFiles(Protocol):
    """Where the files of deliveries are kept."""

    def fetch(self, delivery: str, folder: str, into: Path) -> Sequence[Path]:
        """Copy the files below one folder of a delivery's artifacts."""
        ...


def named_files(spec: Delivery) -> Iterator[Path]:
    """The files that a spec names, as it names them."""
    if spec.offline:
        yield spec.offline.dataset
    if spec.traffic and spec.traffic.prompts:
        yield spec.traffic.prompts


def refuse_unkeepable(spec: Delivery) -> None:
    """Say no to a spec that names a file by a path that is right on this machine only.

    Raises:
        UsageError: it does.
    """
    absolute = next((str(path) for path in named_files(spec) if path.is_absolute()), None)
    if absolute is not None:
        raise UsageError(
            f"the spec names {absolute}, which other machines do not have",
            hint="name it by its path from the spec, so that it can be kept with the delivery",
        )


def keep_spec(ledger: Ledger, spec_path: Path, spec: Delivery) -> str:
    """Keep the spec and what it names; returns where the spec lies among them.

    Raises:
        UsageError: as `refuse_unkeepable`.
    """
    spec_file, paths = laid_out(spec_path, spec)
    for place, path in paths.items():
        ledger.attach(path, folder=str(PurePosixPath(SPEC, place).parent))
    return spec_file


def laid_out(spec_path: Path, spec: Delivery) -> tuple[str, Mapping[str, Path]]:
    """Where the spec lies among the files that it names, and all of them by their places in one folder.

    Raises:
        UsageError: as `refuse_unkeepable`.
    """
    refuse_unkeepable(spec)
    paths = [Path(os.path.normpath(spec_path.absolute()))]
    paths += [Path(os.path.normpath(paths[0].parent / path)) for path in named_files(spec)]
    root = Path(os.path.commonpath([path.parent for path in paths]))
    return paths[0].relative_to(root).as_posix(), {path.relative_to(root).as_posix(): path for path in paths}


def digests_of(paths: Mapping[str, Path]) -> dict[str, str]:
    """The SHA-256 of files that are to be kept, by their places."""
    return {place: sha256(path.read_bytes()).hexdigest() for place, path in paths.items()}


def bring_spec(kept: KeptFiles, delivery: str, spec_file: str, folder: Path) -> Path:
    """The spec of a delivery, brought to `folder` with the files that it names.

    Raises:
        UsageError: it was not kept.
    """
    shutil.rmtree(folder / SPEC, ignore_errors=True)
    kept.fetch(delivery, SPEC, folder)
    path = folder / SPEC / spec_file
    if not path.exists():
        raise UsageError(f"the spec of delivery {delivery} was not kept", hint="deliver the version again")
    return path


def bring_evidence(kept: KeptFiles, delivery: str, folder: Path, told: Vouched) -> None:
    """Bring the transcripts of a delivery to its folder; one that goes further here stays as it is.

    Of what is brought, only what the ledger vouches for is kept: the rest, no verdict was told of.

    Raises:
        NotAsPlanned: a transcript is another than the one that verdicts were told of.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder) as fresh:
        for path in kept.fetch(delivery, EVIDENCE, Path(fresh)):
            trial, content = path.stem, path.read_bytes()
            content = content[: proven(trial, content, told.get(trial, ()))]
            here = folder / EVIDENCE / path.name
            # A process that died here may have written more than it had kept; another's may have gone another way.
            if not content or (here.exists() and here.read_bytes().startswith(content)):
                continue
            here.parent.mkdir(parents=True, exist_ok=True)
            here.write_bytes(content)
