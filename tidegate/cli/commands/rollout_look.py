"""`tidegate rollout get` and `list`: Rollouts as they are now."""

from __future__ import annotations

import asyncio
import sys

from rich.console import RenderableType

from rollouts.argo.family import family_of
from rollouts.argo.health import health_of
from rollouts.argo.picture import Picture, Row, picture_of, row_of
from rollouts.argo.sources import workload_of
from rollouts.kube.resources import ROLLOUTS
from tidegate.cli.console import PlainConsole
from tidegate.cli.output import note, print_json
from tidegate.cli.rollout_durations import seconds
from tidegate.cli.rollout_place import Asked, opened, place_of
from tidegate.cli.rollout_view import rows_table, screen
from tidegate.core.clock import SystemClock

WIDE = 400
"""Columns of what is no terminal: nothing in a log or a pipe is cut to fit."""


def get(asked: Asked, stuck_after: str, *, as_json: bool) -> int:
    """Print one Rollout and all that belongs to it."""
    picture = asyncio.run(_picture(asked, seconds(stuck_after, "--stuck-after")))
    if as_json:
        print_json(picture.model_dump(mode="json"))
    else:
        show(screen(picture, SystemClock().now()))
    return 0


def listing(asked: Asked, *, as_json: bool) -> int:
    """Print a line for each Rollout of the namespace."""
    rows = asyncio.run(_rows(asked))
    if as_json:
        print_json([row.model_dump(mode="json") for row in rows])
    elif rows:
        show(rows_table(rows))
    else:
        note("there are no Rollouts here")
    return 0


def show(renderable: RenderableType) -> None:
    """On stdout: in colour on a terminal, in full and without blanks at line ends where there is none."""
    if sys.stdout.isatty():
        PlainConsole().print(renderable)
        return
    console = PlainConsole(width=WIDE)
    with console.capture() as captured:
        console.print(renderable)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


async def _picture(asked: Asked, stuck_after_seconds: float) -> Picture:
    clock, place = SystemClock(), place_of(asked)
    async with opened(place, clock) as cluster:
        family = await family_of(cluster, place.name)
    now = clock.now()
    health = health_of(family.rollout, now=now, stuck_after_seconds=stuck_after_seconds, workload=family.workload)
    return picture_of(family, health, now=now)


async def _rows(asked: Asked) -> list[Row]:
    clock, place = SystemClock(), place_of(asked, named=False)
    async with opened(place, clock) as cluster:
        found = (await cluster.list(ROLLOUTS)).items
        workloads = await asyncio.gather(*(workload_of(cluster, rollout) for rollout in found))
    now = clock.now()
    return [
        row_of(rollout, health_of(rollout, now=now, workload=workload), workload=workload)
        for rollout, workload in zip(found, workloads, strict=True)
    ]
