"""Runs a workflow's containers as processes of this machine: the real `tidegate`, each with a disk of its own.

They are forked from one process that has loaded everything once, since loading takes longer than most steps.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from fakes.workflow.interpreter import Ended, Pod

_FORK = multiprocessing.get_context("forkserver")
_FORK.set_forkserver_preload(
    [
        "fakes.workflow.commands",
        "mlflow",
        "mlflow.store.tracking.sqlalchemy_store",
        "tidegate.steps",
    ]
)
LOOK_SECONDS = 0.05


class Commands:
    """Starts commands; `variables` and `places` are what the cluster gives its pods: addresses, mounted folders."""

    def __init__(self, folder: Path, variables: Mapping[str, str], places: Mapping[str, Path]) -> None:
        self._folder = folder
        self._variables = dict(variables)
        self._places = dict(places)
        self._numbers = itertools.count(1)
        self.errors: list[str] = []
        """What commands said on stderr."""

    async def run(self, pod: Pod) -> Ended:
        """One container, on a disk that nothing lies on; it dies with the one who waits for it."""
        disk = self._folder / f"pod-{next(self._numbers)}"
        disk.mkdir(parents=True)
        words = [self._here(word) for word in pod.argv[1:]]
        variables = {**self._variables, "TIDEGATE_STATE": str(disk / "state")}
        process = _FORK.Process(target=_tidegate, args=(words, variables, str(disk)))
        process.start()
        try:
            while process.is_alive():
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            if process.is_alive():
                process.kill()
            process.join()
        code = process.exitcode or 0
        self.errors.append(f"{' '.join(words)} -> {code}\n{(disk / 'err').read_text()}")
        return Ended(128 - code if code < 0 else code, (disk / "out").read_text())

    def _here(self, word: str) -> str:
        """The same with paths of the container as paths of this machine."""
        for mounted, folder in self._places.items():
            if word.startswith(f"{mounted}/"):
                return f"{folder}{word.removeprefix(mounted)}"
            word = word.replace(f"={mounted}/", f"={folder}/")
        return word


def _tidegate(words: list[str], variables: Mapping[str, str], disk: str) -> None:
    from tidegate.cli import main

    os.environ.update(variables)
    with (Path(disk) / "out").open("w") as out, (Path(disk) / "err").open("w") as err:
        sys.stdout, sys.stderr = out, err
        os.chdir(disk)
        code = main(words)
        out.flush()
        err.flush()
    os._exit(code)
