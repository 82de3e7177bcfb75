"""Walks a plan to its end, or back to where it began. Whatever happens in between, it ends in one of the two."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

from pipelines.authority.answering import Hearing
from pipelines.errors import Stopped, by_others
from pipelines.model import Ending, PlanStep, Result, StageName
from pipelines.run.approval_gate import refuse_unseen_death, wait_until_allowed
from pipelines.run.context import Context
from pipelines.run.git import say_in_git
from pipelines.run.regions import refuse_others
from pipelines.run.rollback import arrived, request_rollbacks, roll_back_late_changes, take_back_the_rest, told
from registry.conventions import DELIVERY, OUTCOME, REASON
from registry.model import EventKind, Serving
from rollouts.errors import FleetError, NotTheCarrier, Overruled, Unreachable
from tidegate.core.errors import ExitCode, TidegateError, UsageError
from tidegate.core.threads import call_in_thread

Done = TypeVar("Done")

STOPPED = "asked to stop before the end"
SOON_SECONDS = 60.0
"""For regions to be back; one that takes longer holds up nothing else of the ending, and is told as open."""
LEAVING_SECONDS = 30.0
"""For steps that were told to stop; what they still request after that is not undone."""


async def deliver(context: Context) -> Result:
    """Run every step; on a verdict, an error or a cancellation undo what was done, then close the ledger."""
    try:
        await context.journal.opened(context.plan, spec_file=context.spec_file)
        # Nothing has begun yet, and a key may wait for a person's touch.
        if context.asker is not None:
            events, delivery = await context.journal.recorded(), context.journal.delivery
            hearing = Hearing(context.spec, delivery, events, context.identities, context.clock)
            event = await call_in_thread(hearing.request, context.asker)
            await context.journal.record(event)
    except asyncio.CancelledError:
        cancellation_is_heard()
        return await abort(context, Ending.INTERRUPTED, STOPPED, ExitCode.INTERRUPTED)
    except UsageError as error:
        return await abort(context, Ending.FAILED, str(error), error.exit_code)
    return await to_the_end(context)


async def to_the_end(context: Context, done: frozenset[str] = frozenset()) -> Result:
    """As `deliver`, of a delivery that was opened before; the steps in `done` are not repeated."""
    leaving: set[asyncio.Task[None]] = set()
    try:
        for lanes in waves_of([step for step in context.plan.steps if step.id not in done]):
            await _run_branches(context, lanes, leaving)
    except Stopped as stop:
        return await abort(context, stop.ending, stop.reason, stop.exit_code, leaving)
    except asyncio.CancelledError:
        cancellation_is_heard()
        return await abort(context, Ending.INTERRUPTED, STOPPED, ExitCode.INTERRUPTED, leaving)
    except TidegateError as error:
        return await abort(context, Ending.FAILED, str(error), error.exit_code, leaving)
    # A bug must not leave users on a canary either; it keeps its traceback.
    except Exception as bug:
        await abort(context, Ending.FAILED, f"a bug in tidegate: {bug!r}", ExitCode.INTERNAL, leaving)
        raise
    return await delivered(context)


async def delivered(context: Context) -> Result:
    """Every step is done: let Git say so, and close the ledger."""

    async def close() -> Result:
        reason = f"version {context.plan.on_trial} serves {', '.join(context.plan.regions)}"
        return await context.journal.closed(Ending.DELIVERED, reason + await say_in_git(context), ExitCode.DELIVERED)

    return await undisturbed(close())


def cancellation_is_heard() -> None:
    """What is still to do must not be taken for cancelled too, by time limits among other things."""
    task = asyncio.current_task()
    while task is not None and task.uncancel():
        pass


async def undisturbed(work: Coroutine[Any, Any, Done], *, stops_after: bool = False) -> Done:
    """What it returns, also when we are cancelled meanwhile: half a way back is none, and an end is an end.

    With `stops_after` the cancellation comes once it has ended, and to what can close a ledger.
    """
    task, current, cancelled = asyncio.create_task(work), asyncio.current_task(), False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
            cancellation_is_heard()
    if cancelled and stops_after and current:
        current.cancel()
    return task.result()


def waves_of(steps: Sequence[PlanStep]) -> Iterator[list[list[PlanStep]]]:
    """The plan cut into stretches: each a list of lanes, one lane a region, that go side by side."""
    for regional, stretch in groupby(steps, key=lambda step: (step.wave, step.region is not None)):
        # What belongs to no region is done alone: a bake waits for the whole wave.
        if not regional[1]:
            yield from ([[step]] for step in stretch)
            continue
        lanes: dict[str | None, list[PlanStep]] = {}
        for step in stretch:
            lanes.setdefault(step.region, []).append(step)
        yield list(lanes.values())


async def _run_branches(context: Context, lanes: list[list[PlanStep]], leaving: set[asyncio.Task[None]]) -> None:
    """Run lanes side by side; the first that stops is what is raised. The others are told to stop, and left to it.

    Nobody on the way back waits for them: `leaving` has those that have not ended yet.
    """

    async def one_after_the_other(lane: list[PlanStep]) -> None:
        for step in lane:
            await run_step(context, step)

    running = [asyncio.create_task(one_after_the_other(lane)) for lane in lanes]
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


async def run_step(context: Context, step: PlanStep) -> None:
    """Say that the step starts, do it, say that it is done: in this order, so that a crash can be told."""
    journal = context.journal
    try:
        await _begun_and_done(context, step)
    except Stopped as stop:
        journal.failed(step, stop.ending, stop.reason, stop.exit_code)
        raise Stopped(stop.ending, f"{step.id}: {stop.reason}", stop.exit_code) from stop
    except TidegateError as error:
        journal.failed(step, Ending.FAILED, str(error), error.exit_code)
        raise
    # Anyone who waits for the next step to begin waits for this too: the ledger keeps their order.
    journal.tell(step.id, EventKind.DONE)


async def _begun_and_done(context: Context, step: PlanStep) -> None:
    """Wait for leave, say that it begins, do it.

    Raises:
        Stopped: as the stage says; also where somebody else has the region by now, or asks it for another version.
    """
    try:
        await wait_until_allowed(context, step)
        await context.journal.say(step.id, EventKind.STARTED, meanwhile=partial(refuse_unseen_death, context, step))
        await context.stages[step.stage](context, step)
    except (Overruled, NotTheCarrier) as error:
        raise by_others(str(error)) from error
    except FleetError as error:
        # A region that does not answer is not asked why: users wait to be rolled back.
        if not isinstance(error, Unreachable):
            await _refuse_taken_away(context, step)
        raise


async def _refuse_taken_away(context: Context, step: PlanStep) -> None:
    """What did not come about may not have because somebody ended the trial meanwhile: not the version's fault.

    Raises:
        Stopped: so it was.
    """
    if step.region is not None:
        with suppress(TidegateError):
            refuse_others(await context.fleet(step).observe(), context.plan.on_trial)


def _undo_promotion(context: Context) -> None:
    """A delivery that ends while it moves the aliases may have moved some of them; those of others stay as they are."""
    finalize = {step.id for step in context.plan.steps if step.stage is StageName.FINALIZE}
    if finalize & context.journal.begun:
        plan = context.plan
        if plan.is_engine_change and plan.champion_engine:
            context.journal.mark(plan.champion, Serving(now=plan.champion_engine).tag)
        context.journal.reinstate(plan.champion, context.spec.model.serving)


async def abort(
    context: Context,
    ending: Ending,
    reason: str,
    exit_code: ExitCode,
    leaving: Collection[asyncio.Task[None]] = (),
) -> Result:
    """Take every region back, mark the version, close the ledger. A cancellation meanwhile changes nothing.

    `leaving` are steps that were told to stop and have not ended yet; regions do not wait for them.
    """
    return await undisturbed(_abort(context, ending, reason, exit_code, leaving))


async def _abort(
    context: Context, ending: Ending, reason: str, exit_code: ExitCode, leaving: Collection[asyncio.Task[None]]
) -> Result:
    since = context.clock.now()
    ways = await request_rollbacks(context)
    await asyncio.wait(ways.values(), timeout=SOON_SECONDS)
    back = arrived(ways)
    if leaving:
        await asyncio.wait(leaving, timeout=LEAVING_SECONDS)
        await roll_back_late_changes(context, back)
    _undo_promotion(context)
    # The regions are back already: a tag that is missing must not change how the delivery ended.
    whose = f"engine {context.plan.on_trial}: " if context.plan.is_engine_change else ""
    marks = {OUTCOME: str(ending), REASON: f"{whose}{reason}", DELIVERY: context.journal.delivery}
    context.journal.mark(context.plan.version, marks)
    left = await take_back_the_rest(context, ways, since, f"{ending}: {reason}")
    return await context.journal.closed(ending, reason + told(left), exit_code, left)
