"""Carries on a delivery whose process died: what stands in the world is not done again, what is lost is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

from pipelines.context import Context
from pipelines.model import EXIT_CODES, Ending, Plan, Result, StageName, Step
from pipelines.recorded import Failed, done_steps, first_failure
from pipelines.run import STOPPED, cancellation_is_heard, give_up, to_the_end
from rollouts.model import RegionState
from tidegate.core.errors import ExitCode

MADE = frozenset({StageName.DEPLOY, StageName.SMOKE, StageName.CANARY, StageName.PROMOTE})
"""What is done again in a region that went back meanwhile; what offline and shadow have shown stays shown."""
FINAL = frozenset({Ending.ROLLED_BACK, Ending.INCONCLUSIVE})
"""A verdict on the version stands, whoever carries on; what was missing outside may be there now."""


async def resume(context: Context) -> Result:
    """Go on to the end, or take everything back when a verdict had said so before the process died."""
    try:
        await context.journal.say("delivery", "evidence", "carried on where it stood")
        failure = await final_failure(context)
        if failure is None:
            await say_what_is_lost(context)
        done = done_steps(await context.journal.recorded())
    except asyncio.CancelledError:
        cancellation_is_heard()
        return await give_up(context, Ending.INTERRUPTED, STOPPED, ExitCode.INTERRUPTED)
    if failure:
        return await give_up(context, failure.ending, f"{failure.step}: {failure.reason}", EXIT_CODES[failure.ending])
    return await to_the_end(context, done)


async def final_failure(context: Context) -> Failed | None:
    """The verdict that stopped this delivery, when there was one."""
    failure = first_failure(await context.journal.recorded())
    return failure if failure and failure.ending in FINAL else None


async def say_what_is_lost(context: Context) -> None:
    """Look at every region, and say in the ledger which steps the world no longer shows."""
    regions = context.plan.regions
    states = await asyncio.gather(*(context.fleets[region].observe() for region in regions))
    done = done_steps(await context.journal.recorded())
    for step in lost(context.plan, done, dict(zip(regions, states, strict=True))):
        await context.journal.say(step.id, "undone", f"{step.region or f'wave {step.wave}'} no longer shows it")


def lost(plan: Plan, done: frozenset[str], states: Mapping[str, RegionState]) -> Iterator[Step]:
    """The steps that are done by the ledger and undone by the world, as after a region went back by itself."""
    gone = {region for region, state in states.items() if not _stands(plan, region, done, state)}
    # A region that serves nobody is one of a new fleet: whatever came first there would be its stable.
    anew = any(state.stable is None for state in states.values())
    waves = {step.wave for step in plan.steps if step.region in gone}
    for step in plan.steps:
        in_vain = step.stage is StageName.BAKE and step.wave in waves
        if step.id in done and (in_vain or (step.region in gone and step.stage in MADE) or (anew and _sets_up(step))):
            yield step


def _sets_up(step: Step) -> bool:
    """Whether the step's work is in the fleet, and went with it."""
    return step.stage in MADE | {StageName.BUILD, StageName.BAKE}


def _stands(plan: Plan, region: str, done: frozenset[str], state: RegionState) -> bool:
    """Whether a region shows what the ledger says was made there."""
    mine = {step.stage for step in plan.steps if step.region == region and step.id in done}
    # A process that died while it promoted may have moved the region before it could say so.
    arms = (state.stable,) if StageName.PROMOTE in mine else (state.canary, state.stable)
    return not mine & MADE or plan.version.version in {arm.version for arm in arms if arm}
