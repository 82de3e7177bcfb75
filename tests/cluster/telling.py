"""Tells stories side by side, because they mostly wait for evidence."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from cluster.bed import Bed
from cluster.stories import Told

SIDE_BY_SIDE = int(os.environ.get("TIDEGATE_TEST_STORIES", "4"))
TABLE = "TIDEGATE_TEST_TABLE"
"""A file that gets what the stories told, as JSON."""

Story = Callable[[Bed], Told]
Telling = Callable[[str], Told]


@contextmanager
def telling(
    regions: Bed, names: Sequence[str], together: Mapping[str, Story], alone: Mapping[str, Story]
) -> Iterator[Telling]:
    """The ending of each story: those that may be told together begin at once, the others when they are asked for."""
    rows: dict[str, dict[str, str]] = {}
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        begun = {name: pool.submit(together[name], regions) for name in names if name in together}

        def ending(name: str) -> Told:
            told = begun[name].result() if name in begun else alone[name](regions)
            rows[name] = asdict(told)
            print(f"{name}: {told.ending}; {told.users}; {told.note}")
            return told

        yield ending
        pool.shutdown(cancel_futures=True)
    if named := os.environ.get(TABLE):
        _add(Path(named), rows)


def _add(table: Path, rows: Mapping[str, object]) -> None:
    known = json.loads(table.read_text(encoding="utf-8")) if table.exists() else {}
    table.write_text(json.dumps({**known, **rows}, indent=2) + "\n", encoding="utf-8")
