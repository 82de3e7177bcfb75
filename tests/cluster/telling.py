"""Tells stories side by side, because they mostly wait: for engines, for evidence, for a Lease to run out."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

from cluster.bed import Bed, bed
from cluster.stories import Told
from cluster.surroundings import Surroundings

SIDE_BY_SIDE = int(os.environ.get("TIDEGATE_TEST_STORIES", "4"))
TABLE = "TIDEGATE_TEST_TABLE"
"""A file that gets what the stories told, as JSON."""

Story = Callable[[Bed], Any]
Tell = Callable[[str], Any]
"""What came of the story of that name."""


class Telling:
    """All stories that a run of pytest asks for."""

    def __init__(self, bed: Future[Bed], begun: Mapping[str, Future[Any]], alone: Mapping[str, Story]) -> None:
        self.bed = bed
        """Where they are told, once it is there."""
        self._begun = begun
        self._alone = alone

    def ending(self, name: str) -> Any:
        """How that story ended; one that disturbs others is told now, when they are over."""
        if name in self._begun:
            told = self._begun[name].result()
        else:
            wait(self._begun.values())
            told = self._alone[name](self.bed.result())
        if isinstance(told, Told):
            print(f"{name}: {told.ending}; {told.users}; {told.note}")
            _keep(name, told)
        return told


@contextmanager
def telling(
    around: Surroundings, namespace: str, folder: Path, names: Mapping[ModuleType, Sequence[str]]
) -> Iterator[Telling]:
    """Begin them in the background, by the tables of the modules that name them.

    Those of `TOGETHER` begin at once; those of `ALONE`, where a module has some, when they are asked for.
    """
    alone = {name: story for module in names for name, story in getattr(module, "ALONE", {}).items()}
    with _held(around, namespace, folder) as made, ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        begun: dict[str, Future[Any]] = {}
        # What waits for minutes is in the last files.
        for module, wanted in reversed(names.items()):
            for name in (each for each in wanted if each in module.TOGETHER):
                begun[name] = pool.submit(_told, module.TOGETHER[name], made)
        yield Telling(made, begun, alone)
        pool.shutdown(cancel_futures=True)


def _told(story: Story, made: Future[Bed]) -> Any:
    return story(made.result())


@contextmanager
def _held(around: Surroundings, namespace: str, folder: Path) -> Iterator[Future[Bed]]:
    """A bed that is made in a thread of its own: tests that need none of it go on meanwhile."""
    made, leaving = Future[Bed](), threading.Event()

    def hold() -> None:
        try:
            with bed(around, namespace, folder) as regions:
                made.set_result(regions)
                leaving.wait()
        except BaseException as error:
            if not made.done():
                made.set_exception(error)
            raise

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(hold)
        try:
            yield made
        finally:
            leaving.set()
    if error := holding.exception():
        raise error


def _keep(name: str, told: Told) -> None:
    """Write it down where somebody wants a table."""
    if named := os.environ.get(TABLE):
        table = Path(named)
        known = json.loads(table.read_text(encoding="utf-8")) if table.exists() else {}
        table.write_text(json.dumps({**known, name: asdict(told)}, indent=2) + "\n", encoding="utf-8")
