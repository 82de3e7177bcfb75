"""Walks a plan to its end, or back to where it began. Whatever happens in between, it ends in one of the two."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import groupby

from pipelines.context import Context
from pipelines.errors import Stopped, by_others
from pipelines.hold import until_allowed
from pipelines.model import Ending, Result, StageName, Step
from pipelines.rights import request_of
from pipelines.stages import STAGES
from pipelines.unwind import unwind, unwind_what_came_late
from pipelines.watch import refuse_dead_canary
from rollouts.errors import Overruled
from tidegate.core.errors import ExitCode, TidegateError, UsageError

STOPPED = "asked to stop before the end"
LEAVING_SECONDS = 30.0
"""For steps that were told to stop; what they still wish after that is not undone."""


async def deliver(context: Context) -> Result:
    """Run every step; on a verdict, an error or a cancellation undo what was done, then close the ledger."""
    try:
        await context.journal.opened(context.plan, spec_file=context.spec_file)
        await _say_who_asks(context)
    except asyncio.CancelledError:
        cancellation_is_heard()
        return await give_up(context, Ending.INTERRUPTED, STOPPED, ExitCode.INTERRUPTED)
    except UsageError as error:
        return await give_up(context, Ending.FAILED, str(error), error.exit_code)
    return await to_the_end(context)


async def _say_who_asks(context: Context) -> None:
    """Where somebody proves it: nothing has begun yet, and a key may wait for a person's touch."""
    if context.asker is not None:
        events, now = await context.journal.recorded(), context.clock.now()
        asked = (context.journal.delivery, events, context.asker, context.identities, now)
        event = await asyncio.to_thread(request_of, *asked)
        await context.journal.say(event.step, event.kind, event.message, event.data)


async def to_the_end(context: Context, done: frozenset[str] = frozenset()) -> Result:
    """As `deliver`, of a delivery that was opened before; the steps in `done` are not repeated."""
    leaving: set[asyncio.Task[None]] = set()
    try:
        for lanes in stretches([step for step in context.plan.steps if step.id not in done]):
            await _together(context, lanes, leaving)
    except Stopped as stop:
        return await give_up(context, stop.ending, stop.reason, stop.exit_code, leaving)
    except asyncio.CancelledError:
        cancellation_is_heard()
        return await give_up(context, Ending.INTERRUPTED, STOPPED, ExitCode.INTERRUPTED, leaving)
    except TidegateError as error:
        return await give_up(context, Ending.FAILED, str(error), error.exit_code, leaving)
    # A bug must not leave users on a canary either; it keeps its traceback.
    except Exception as bug:
        await give_up(context, Ending.FAILED, f"a bug in tidegate: {bug!r}", ExitCode.INTERNAL, leaving)
        raise
    return await delivered(context)


async def delivered(context: Context) -> Result:
    """Every step is done: close the ledger."""
    reason = f"version {context.plan.version.version} serves {', '.join(context.plan.regions)}"
    return await context.journal.closed(Ending.DELIVERED, reason, ExitCode.DELIVERED)


def cancellation_is_heard() -> None:
    """What is still to do must not be taken for cancelled too, by time limits among other things."""
    task = asyncio.current_task()
    while task is not None and task.uncancel():
        pass


def stretches(steps: Sequence[Step]) -> Iterator[list[list[Step]]]:
    """The plan cut into stretches: each a list of lanes, one lane a region, that go side by side."""
    for regional, stretch in groupby(steps, key=lambda step: (step.wave, step.region is not None)):
        # What belongs to no region is done alone: a bake waits for the whole wave.
        if not regional[1]:
            yield from ([[step]] for step in stretch)
            continue
        lanes: dict[str | None, list[Step]] = {}
        for step in stretch:
            lanes.setdefault(step.region, []).append(step)
        yield list(lanes.values())


async def _together(context: Context, lanes: list[list[Step]], leaving: set[asyncio.Task[None]]) -> None:
    """Run lanes side by side; the first that stops is what is raised. The others are told to stop, and left to it.

    Nobody on the way back waits for them: `leaving` has those that have not ended yet.
    """
    running = [asyncio.create_task(_lane(context, lane)) for lane in lanes]
    try:
        await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
        stopped = next((task for task in running if task.done() and not task.cancelled() and task.exception()), None)
        # One that was cancelled by somebody else has not done its steps either.
        for task in (stopped,) if stopped else running:
            task.result()
    finally:
        for task in running:
            # One that stops at the same time, or on its way out, has nothing to say any more.
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            if not task.done():
                task.cancel()
                leaving.add(task)


async def _lane(context: Context, lane: list[Step]) -> None:
    """One region's steps of a stretch, one after the other."""
    for step in lane:
        await run_step(context, step)


async def run_step(context: Context, step: Step) -> None:
    """Say that the step starts, do it, say that it is done: in this order, so that a crash can be told."""
    journal = context.journal
    try:
        await until_allowed(context, step)
        await journal.say(step.id, "started", meanwhile=partial(_users_are_served, context, step))
        await _stage(context, step)
    except Stopped as stop:
        journal.failed(step, stop.ending, stop.reason, stop.exit_code)
        raise Stopped(stop.ending, f"{step.id}: {stop.reason}", stop.exit_code) from stop
    except TidegateError as error:
        journal.failed(step, Ending.FAILED, str(error), error.exit_code)
        raise
    # Whoever waits for the next step to begin waits for this too: the ledger keeps their order.
    journal.tell(step.id, "done")


async def _users_are_served(context: Context, step: Step) -> None:
    """While a step waits to begin: a canary that has users already must not die unseen."""
    if step.stage in (StageName.CANARY, StageName.PROMOTE):
        state = await context.fleet(step).observe()
        # One that was promoted by a process that died is no canary any more.
        if state.stable is None or state.stable.version != context.plan.version.version:
            refuse_dead_canary(context, state)


async def _stage(context: Context, step: Step) -> None:
    try:
        await STAGES[step.stage](context, step)
    except Overruled as error:
        raise by_others(str(error)) from error


def _undo_promotion(context: Context) -> None:
    """A delivery that ends while it moves the aliases may have moved some of them; those of others stay as they are."""
    finalize = {step.id for step in context.plan.steps if step.stage is StageName.FINALIZE}
    if finalize & context.journal.begun:
        context.journal.reinstate(context.plan.champion)


async def give_up(
    context: Context,
    ending: Ending,
    reason: str,
    exit_code: ExitCode,
    leaving: Collection[asyncio.Task[None]] = (),
) -> Result:
    """Take every region back, mark the version, close the ledger. A second cancellation changes nothing.

    `leaving` are steps that were told to stop and have not ended yet; regions do not wait for them.
    """
    back = await unwind(context)
    if leaving:
        await asyncio.wait(leaving, timeout=LEAVING_SECONDS)
        await unwind_what_came_late(context, back)
    _undo_promotion(context)
    # The regions are back already: a tag that is missing must not change how the delivery ended.
    context.journal.mark(context.plan.version, {"tidegate.outcome": str(ending), "tidegate.reason": reason})
    return await context.journal.closed(ending, reason, exit_code)
