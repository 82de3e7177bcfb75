"""Carries on a delivery: all of it after its process died, or one step in a process of its own.

A workflow runs single steps in the plan's order; the ledger is all that they share. What is done is not done
again; what a region lost is. A last process closes the delivery, whatever became of the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence

from pipelines.authority.answering import AnswerVerifier
from pipelines.errors import Stopped
from pipelines.events.payloads import StepProgress
from pipelines.events.state import (
    Failed,
    asked_to_stop,
    done_steps,
    first_failure,
    missing_before,
    outcome_of,
    step_of,
)
from pipelines.model import EXIT_CODES, Ending, Plan, PlanStep, Result, StageName
from pipelines.run.context import Context
from pipelines.run.engine import STOPPED, abort, cancellation_is_heard, delivered, run_step, to_the_end, undisturbed
from pipelines.run.rollback import roll_back
from registry.model import Event, EventKind
from rollouts.model import RegionState
from tidegate.core.adapters.extras import not_installed
from tidegate.core.errors import ExitCode, TidegateError, UsageError
from tidegate.core.model import Value
from tidegate.core.threads import call_in_thread

MADE = frozenset({StageName.DEPLOY, StageName.SMOKE, StageName.CANARY, StageName.PROMOTE})
"""What is done again in a region that went back meanwhile; what offline and shadow have shown stays shown."""
FINAL = frozenset({Ending.ROLLED_BACK, Ending.INCONCLUSIVE})
"""A verdict on the version stands, no matter who carries on; what was missing outside may be there now."""


async def resume(context: Context) -> Result:
    """Go on to the end, or take everything back when a verdict had said so before the process died."""
    try:
        await context.journal.say("delivery", StepProgress(), "carried on where it stood")
        events = await context.journal.recorded()
        failure = final_failure(events)
        if failure is None:
            await say_what_is_lost(context, done_steps(events))
        done = done_steps(await context.journal.recorded())
    except asyncio.CancelledError:
        cancellation_is_heard()
        return await abort(context, Ending.INTERRUPTED, STOPPED, ExitCode.INTERRUPTED)
    if failure:
        return await abort(context, failure.ending, f"{failure.step}: {failure.reason}", EXIT_CODES[failure.ending])
    return await to_the_end(context, done)


def final_failure(events: Sequence[Event]) -> Failed | None:
    """The verdict that stopped this delivery, when there was one."""
    failure = first_failure(events)
    return failure if failure and failure.ending in FINAL else None


async def say_what_is_lost(context: Context, done: frozenset[str]) -> None:
    """Look at every region, and say in the ledger which steps that are done the world no longer shows."""
    regions = context.plan.regions
    states = await asyncio.gather(*(context.fleets[region].observe() for region in regions))
    for step in lost(context.plan, done, dict(zip(regions, states, strict=True))):
        await context.journal.say(step.id, EventKind.UNDONE, f"{step.region or f'wave {step.wave}'} no longer shows it")


def lost(plan: Plan, done: frozenset[str], states: Mapping[str, RegionState]) -> Iterator[PlanStep]:
    """The steps that are done by the ledger and undone by the world, as after a region went back by itself."""
    gone = {region for region, state in states.items() if not _stands(plan, region, done, state)}
    # A region that serves nobody is one of a new fleet: whatever came first there would be its stable.
    again = any(state.stable is None for state in states.values())
    waves = {step.wave for step in plan.steps if step.region in gone}
    for step in plan.steps:
        in_vain = step.stage is StageName.BAKE and step.wave in waves
        # Its work is in the fleet, and went with it.
        went = again and step.stage in MADE | {StageName.BUILD, StageName.BAKE}
        if step.id in done and (in_vain or went or (step.region in gone and step.stage in MADE)):
            yield step


def _stands(plan: Plan, region: str, done: frozenset[str], state: RegionState) -> bool:
    """Whether a region shows what the ledger says was made there."""
    mine = {step.stage for step in plan.steps if step.region == region and step.id in done}
    # A process that died while it promoted may have moved the region before it could say so.
    arms = (state.stable,) if StageName.PROMOTE in mine else (state.canary, state.stable)
    return not mine & MADE or plan.on_trial in {arm.version for arm in arms if arm}


class StepResult(Value):
    """What became of one step."""

    step: str
    done: bool
    reason: str
    exit_code: ExitCode


async def take_step(context: Context, wanted: str) -> StepResult:
    """Do the step with that id; one that is done already is not done again.

    A verdict takes the step's region back at once: users do not wait for the one who closes the delivery.

    Raises:
        UsageError: there is no such step, one before it is not done, or somebody carried the delivery on who may not.
        OutsideError: something was not there; the step may be repeated.
        NotInstalled: it needs a package that is not here.
    """
    events = await context.journal.recorded()
    step, done = step_of(context.plan, wanted), done_steps(events)
    if step.id in done:
        return StepResult(step=step.id, done=True, reason="done before", exit_code=ExitCode.DELIVERED)
    if failure := final_failure(events):
        reason = f"the delivery goes no further: {failure.step}: {failure.reason}"
        return StepResult(step=step.id, done=False, reason=reason, exit_code=EXIT_CODES[failure.ending])
    if asked := asked_to_stop(events):
        # Not worth another try, and no verdict: the one who closes the delivery takes its regions back.
        return StepResult(step=step.id, done=False, reason=asked, exit_code=ExitCode.INTERRUPTED)
    heirs = AnswerVerifier(context.identities)
    await call_in_thread(heirs.refuse_unproven_heir, context.spec.resume, context.journal.delivery, events)
    missing = missing_before(context.plan, step, done)
    if missing:
        raise UsageError(f"{step.id} comes after {missing[0]}, which is not done", hint="run its steps in order")
    return await _take(context, step)


async def _take(context: Context, step: PlanStep) -> StepResult:
    try:
        await run_step(context, step)
        # Anyone who comes next reads in the ledger that this is done.
        await context.journal.written()
    except Stopped as stop:
        await undisturbed(roll_back(context, [step.region] if step.region else context.plan.regions))
        await context.journal.settle()
        return StepResult(step=step.id, done=False, reason=stop.reason, exit_code=stop.exit_code)
    except asyncio.CancelledError:
        cancellation_is_heard()
        context.journal.failed(step, Ending.INTERRUPTED, "asked to stop before the end", ExitCode.INTERRUPTED)
        await context.journal.settle()
        # No verdict: a node that is emptied asks so too, and then the step is to be repeated elsewhere.
        return StepResult(step=step.id, done=False, reason="asked to stop", exit_code=ExitCode.OUTSIDE)
    except TidegateError:
        await context.journal.settle()
        raise
    except ModuleNotFoundError as error:
        raise not_installed(str(error.name)) from error
    # A bug keeps its traceback; the one who closes the delivery finds here why it ended.
    except Exception as bug:
        context.journal.failed(step, Ending.FAILED, f"a bug in tidegate: {bug!r}", ExitCode.INTERNAL)
        await context.journal.settle()
        raise
    return StepResult(step=step.id, done=True, reason="done", exit_code=ExitCode.DELIVERED)


async def close(context: Context) -> Result:
    """End the delivery: delivered when every step is done, else rolled back everywhere. May be repeated.

    Raises:
        DeliveryLost: another process has closed it or carries it on; nothing was touched.
    """
    events = await context.journal.recorded()
    ended = outcome_of(events, context.journal.delivery)
    if ended is not None:
        await context.journal.seal(ended)
        return ended
    # Before anything is touched: a delivery that was lost may have a successor, whose regions these are now.
    await context.journal.say("delivery", StepProgress(), "closing")
    done = done_steps(events)
    left = [step.id for step in context.plan.steps if step.id not in done]
    if not left:
        return await delivered(context)
    failure = first_failure(events)
    if failure:
        reason = f"{failure.step}: {failure.reason}"
        return await abort(context, failure.ending, reason, ExitCode(failure.exit_code))
    reason = asked_to_stop(events) or f"ended before {left[0]} was done"
    return await abort(context, Ending.INTERRUPTED, reason, ExitCode.INTERRUPTED)
