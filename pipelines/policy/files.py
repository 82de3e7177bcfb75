"""The files that a spec names: regular ones below the repository, for what they hold is sent to engines and kept."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from pipelines.spec import Delivery
from tidegate.core.model import Contradiction, Loc

OF_THE_KERNEL = (Path("/proc"), Path("/sys"), Path("/dev"))
REPOSITORY = ".git"
"""What lies in the root of a repository."""


def root_of(spec_path: Path) -> Path:
    """Where files that the spec names may lie: its repository, or its own folder where it is in none."""
    folder = spec_path.absolute().parent
    return next((each for each in (folder, *folder.parents) if (each / REPOSITORY).exists()), folder)


def files_elsewhere(spec: Delivery, folder: Path, root: Path) -> Iterator[Contradiction]:
    """Every named file that lies outside `root`, by a link or not, or is none; one that is missing is nobody's.

    Args:
        spec: names files by their paths from `folder`.
        folder: where the spec lies.
        root: as `root_of` says, or the operator.
    """
    for where, path in _named(spec):
        real = (folder / path).resolve()
        if any(real.is_relative_to(each) for each in OF_THE_KERNEL):
            yield Contradiction(where, str(path), "a file, and nothing of the kernel's")
        elif not real.is_relative_to(root.resolve()):
            expected = f"a file below {root}; TIDEGATE_ROOT names another folder for the files of specs"
            yield Contradiction(where, f"{path}, which is {real}", expected)
        elif real.exists() and not stat.S_ISREG(real.stat().st_mode):
            yield Contradiction(where, str(path), "a regular file")


def _named(spec: Delivery) -> Iterator[tuple[Loc, Path]]:
    for index, stage in enumerate(spec.stages):
        if stage.offline:
            yield ("stages", index, "offline", "dataset"), stage.offline.dataset
    if spec.traffic and spec.traffic.prompts:
        yield ("traffic", "prompts"), spec.traffic.prompts
    if spec.gates.judge and spec.gates.judge.control.labels:
        yield ("gates", "judge", "control", "labels"), spec.gates.judge.control.labels
