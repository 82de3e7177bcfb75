"""Takes every region back to the champion. Each region on its own: one that is lost does not hold the others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from pipelines.context import Context
from pipelines.ports import Fleet
from rollouts.errors import NotPossible
from rollouts.model import RegionState
from tidegate.core.errors import TidegateError

HEAD_START_SECONDS = 0.5
"""Of the regions before the records."""


def needs_undoing(state: RegionState, champion: str) -> bool:
    """Whether a region has a canary or serves something other than the champion."""
    # An empty region has nothing to undo: it never served, or its host is new.
    return state.canary is not None or (state.stable is not None and state.stable.version != champion)


async def unwind(context: Context, regions: Iterable[str] | None = None) -> frozenset[str]:
    """Roll back regions side by side, by default all; returns those that are back once each is, or is reported lost.

    Users come first: every region is asked before anything is written down, and before anybody is waited for.
    """
    wanted = tuple(regions or context.plan.regions)
    context.journal.hold()
    asked = {region: asyncio.create_task(_ask(context, region)) for region in wanted}
    await asyncio.wait(asked.values(), timeout=HEAD_START_SECONDS)
    context.journal.release()
    back = await asyncio.gather(*(_undo(context, region, answer) for region, answer in asked.items()))
    return frozenset(region for region, is_back in zip(wanted, back, strict=True) if is_back)


async def unwind_what_came_late(context: Context, regions: Iterable[str]) -> None:
    """Look again at regions that went back while a step there was still on its way out.

    Its last wish may have come after the way back.
    """

    async def again(region: str) -> None:
        with suppress(TidegateError):
            state = await context.fleets[region].observe()
            if needs_undoing(state, context.plan.champion.version):
                await unwind(context, [region])

    await asyncio.gather(*(again(region) for region in regions))


def _is_touched(context: Context, region: str) -> bool:
    """Whether a step of this delivery began in the region."""
    return any(step.region == region and step.id in context.journal.begun for step in context.plan.steps)


async def _ask(context: Context, region: str) -> RegionState:
    """Ask a region that this delivery has touched to go back, without a look first; of others, only look."""
    fleet, champion = context.fleets[region], context.plan.champion.version
    return await (fleet.rollback(champion) if _is_touched(context, region) else fleet.observe())


async def _undo(context: Context, region: str, asked: asyncio.Task[RegionState]) -> bool:
    """Tell what became of it, and take it back in another way where the first was none; whether it is back."""
    step, champion = f"undo@{region}", context.plan.champion.version
    fleet, journal = context.fleets[region], context.journal
    try:
        state = await _answered(asked, fleet)
        if needs_undoing(state, champion):
            journal.tell(step, "started", f"{region} goes back to version {champion}")
            state = await back_to_champion(context, fleet)
        elif not _is_touched(context, region):
            return True
    except TidegateError as error:
        journal.tell(step, "failed", f"{region} could not be taken back and keeps serving what it serves: {error}")
        return False
    traffic = {"region": region, "weight": state.weight, "mirror": state.mirror}
    journal.tell(step, "traffic", f"{region}: all users are on version {champion}", traffic)
    # Users come first, and are where they belong; what is left to do there must not go unsaid.
    left = f"; {state.problem}" if state.problem else ""
    journal.tell(step, "done", f"{region} serves version {champion}{left}")
    return True


async def _answered(asked: asyncio.Task[RegionState], fleet: Fleet) -> RegionState:
    """The region as it is; one where the champion is not warm, or that never served, could not be asked blindly."""
    try:
        return await asked
    except NotPossible:
        return await fleet.observe()


async def back_to_champion(context: Context, fleet: Fleet) -> RegionState:
    """To the warm champion; one that is no longer warm is started again and takes over when it is ready."""
    try:
        return await fleet.rollback(context.plan.champion.version)
    except NotPossible:
        progress = partial(context.journal.tell, "undo", "evidence")
        await fleet.deploy(await context.engines.prepare(context.plan.champion, progress))
        return await fleet.promote()
