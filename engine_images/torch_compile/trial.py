"""The order of a trial: eager, then every mode from nothing and from the cache that this saved."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from engine_images.errors import NotProven
from engine_images.torch_compile.model import Compiled, Job, Options, Run, Subject, Trial
from engine_images.torch_compile.proof import problems
from tidegate.core.errors import UsageError

Progress = Callable[[str], None]


class Processes(Protocol):
    """Runs each job in a fresh process; eager outputs are kept for the jobs after it."""

    def run(self, job: Job, progress: Progress) -> Run:
        """Raises TidegateError with one line when the job fails."""
        ...


def try_compiled(
    processes: Processes,
    subject: Subject,
    options: Iterable[Options],
    *,
    save: Path | None,
    tolerance: float,
    progress: Progress,
) -> Trial:
    """Compile each way, start it again from its saved cache, and keep that as `save/MODE` once all are proven.

    Raises:
        NotProven: a saved cache is not used again, or a compiled model is another than the eager one; nothing is
            kept then.
        UsageError: `save` has one of the modes already.
    """
    asked = tuple(options)
    if save is not None:
        _refuse_what_is_there(save, asked)
    with _beside(save) as folder:
        progress("eager")
        eager = processes.run(Job(subject=subject), progress)
        found = []
        for each in asked:
            progress(f"{each.mode}, compiled from nothing")
            cold = processes.run(Job(subject=subject, options=each, save=folder / each.mode), progress)
            progress(f"{each.mode}, from the saved cache")
            cached = processes.run(Job(subject=subject, options=each, load=folder / each.mode), progress)
            found.append(_proven(Compiled(options=each, cold=cold, cached=cached), tolerance))
        if save is not None:
            for each in asked:
                (folder / each.mode).rename(save / each.mode)
    return Trial(subject=subject, eager=eager, compiled=tuple(found))


def try_saved(
    processes: Processes,
    subject: Subject,
    options: Iterable[Options],
    *,
    load: Path,
    tolerance: float,
    progress: Progress,
) -> Trial:
    """Start from caches that were saved before, as `load/MODE`.

    Raises:
        OtherKey: one was made for something else; the message names each factor.
        NotProven: as `try_compiled`.
    """
    progress("eager")
    eager = processes.run(Job(subject=subject), progress)
    found = []
    for each in options:
        progress(f"{each.mode}, from the saved cache")
        cached = processes.run(Job(subject=subject, options=each, load=load / each.mode), progress)
        found.append(_proven(Compiled(options=each, cold=None, cached=cached), tolerance))
    return Trial(subject=subject, eager=eager, compiled=tuple(found))


def _proven(compiled: Compiled, tolerance: float) -> Compiled:
    odd = problems(compiled, tolerance)
    if odd:
        raise NotProven(f"{compiled.options.mode}: {'; '.join(odd)}")
    return compiled


def _refuse_what_is_there(save: Path, options: tuple[Options, ...]) -> None:
    for each in options:
        if (save / each.mode).exists():
            raise UsageError(f"{save / each.mode} exists", hint="remove it, or start from it with --load")


@contextmanager
def _beside(save: Path | None) -> Iterator[Path]:
    """A folder for caches that are not proven yet, on the disk where they are to stay."""
    if save is not None:
        save.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".unproven-", dir=save))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
