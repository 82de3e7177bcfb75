"""Takes every region back to the champion. Each region on its own: one that is lost does not hold the others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

from pipelines.context import Context
from pipelines.ports import Fleet
from rollouts.errors import NotPossible
from rollouts.model import RegionState
from tidegate.core.errors import TidegateError


def needs_undoing(state: RegionState, champion: str) -> bool:
    """Whether a region has a canary or serves something other than the champion."""
    # An empty region has nothing to undo: it never served, or its host is new.
    return state.canary is not None or (state.stable is not None and state.stable.version != champion)


async def unwind(context: Context, regions: Iterable[str] | None = None) -> None:
    """Roll back regions side by side, by default all; returns when each is back or has been reported lost."""
    await asyncio.gather(*(_undo(context, region) for region in regions or context.plan.regions))


async def _undo(context: Context, region: str) -> None:
    step, champion = f"undo@{region}", context.plan.champion.version
    fleet, journal = context.fleets[region], context.journal
    try:
        if not needs_undoing(await fleet.observe(), champion):
            return
        journal.try_to_say(step, "started", f"{region} goes back to version {champion}")
        state = await back_to_champion(context, fleet)
    except TidegateError as error:
        message = f"{region} could not be taken back and keeps serving what it serves: {error}"
        journal.try_to_say(step, "failed", message)
        return
    traffic = {"region": region, "weight": state.weight, "mirror": state.mirror}
    journal.try_to_say(step, "traffic", f"{region}: all users are on version {champion}", traffic)
    # Users come first, and are where they belong; what is left to do there must not go unsaid.
    left = f"; {state.problem}" if state.problem else ""
    journal.try_to_say(step, "done", f"{region} serves version {champion}{left}")


async def back_to_champion(context: Context, fleet: Fleet) -> RegionState:
    """To the warm champion; one that is no longer warm is started again and takes over when it is ready."""
    try:
        return await fleet.rollback(context.plan.champion.version)
    except NotPossible:
        progress = partial(context.journal.try_to_say, "undo", "evidence")
        await fleet.deploy(await context.engines.prepare(context.plan.champion, progress))
        return await fleet.promote()
