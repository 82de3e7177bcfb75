"""`tidegate rollout status`: waits until somebody has to look, and says what for by its exit code."""

from __future__ import annotations

import asyncio

from rollouts.argo.picture import row_of
from rollouts.argo.waiting import Ending, Settled, settle
from tidegate.cli.output import print_json, say
from tidegate.cli.rollout_durations import seconds
from tidegate.cli.rollout_place import Asked, opened, place_of
from tidegate.cli.rollout_view import health_text
from tidegate.core.clock import SystemClock
from tidegate.core.errors import ExitCode

EXIT_CODES = {
    Ending.HEALTHY: ExitCode.DELIVERED,
    Ending.DEGRADED: ExitCode.ROLLED_BACK,
    Ending.PAUSED: ExitCode.USAGE,
    Ending.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
    Ending.STUCK: ExitCode.OUTSIDE,
    Ending.TIMEOUT: ExitCode.OUTSIDE,
    Ending.PROGRESSING: ExitCode.OUTSIDE,
}
"""Paused shares its code with what was refused for now: nothing happens until somebody says something else."""


def run(asked: Asked, timeout: str, stuck_after: str, *, as_json: bool) -> int:
    """Wait, then print how it ended up."""
    place = place_of(asked)
    settled = asyncio.run(_settled(asked, seconds(timeout, "--timeout"), seconds(stuck_after, "--stuck-after")))
    code = EXIT_CODES[settled.outcome]
    if as_json:
        row = row_of(settled.rollout, settled.health)
        print_json(
            {
                "outcome": settled.outcome,
                "exit_code": code,
                "waited_seconds": round(settled.waited_seconds, 1),
                "rollout": row.model_dump(mode="json"),
            }
        )
    else:
        late = f"not there after {timeout}: " if settled.outcome is Ending.TIMEOUT else ""
        say(f"{place.name}: {late}{health_text(settled.health)}")
    return code


async def _settled(asked: Asked, within_seconds: float, stuck_after_seconds: float) -> Settled:
    clock, place = SystemClock(), place_of(asked)
    async with opened(place, clock) as cluster:
        return await settle(
            cluster, clock, place.name, within_seconds=within_seconds, stuck_after_seconds=stuck_after_seconds
        )
