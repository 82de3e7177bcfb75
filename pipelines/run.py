"""Walks a plan to its end, or back to where it began. Whatever happens in between, it ends in one of the two."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import groupby

from pipelines.context import Context
from pipelines.errors import Stopped
from pipelines.hold import until_allowed
from pipelines.model import EXIT_CODES, Ending, Result, StageName, Step
from pipelines.stages import STAGES
from pipelines.unwind import unwind
from tidegate.core.errors import ExitCode, TidegateError


async def deliver(context: Context) -> Result:
    """Run every step; on a verdict, an error or a cancellation undo what was done, then close the ledger."""
    context.journal.opened(context.plan, spec_file=context.spec_file)
    return await to_the_end(context)


async def to_the_end(context: Context, done: frozenset[str] = frozenset()) -> Result:
    """As `deliver`, of a delivery that was opened before; the steps in `done` are not repeated."""
    try:
        for lanes in stretches([step for step in context.plan.steps if step.id not in done]):
            await _together(context, lanes)
    except Stopped as stop:
        return await give_up(context, stop.ending, stop.reason, EXIT_CODES[stop.ending])
    except asyncio.CancelledError:
        cancellation_is_heard()
        reason = "asked to stop before the end"
        return await give_up(context, Ending.INTERRUPTED, reason, ExitCode.INTERRUPTED)
    except TidegateError as error:
        return await give_up(context, Ending.FAILED, str(error), error.exit_code)
    # A bug must not leave users on a canary either; it keeps its traceback.
    except Exception as bug:
        await give_up(context, Ending.FAILED, f"a bug in tidegate: {bug!r}", ExitCode.INTERNAL)
        raise
    return delivered(context)


def delivered(context: Context) -> Result:
    """Every step is done: close the ledger."""
    reason = f"version {context.plan.version.version} serves {', '.join(context.plan.regions)}"
    return context.journal.closed(Ending.DELIVERED, reason, ExitCode.DELIVERED)


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


async def _together(context: Context, lanes: list[list[Step]]) -> None:
    """Run lanes side by side; the first that stops cancels the others and is what is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for lane in lanes:
                group.create_task(_lane(context, lane))
    except BaseExceptionGroup as stops:
        raise _first(stops) from None


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What came first; what the others raised, if anything, came of being cancelled for it."""
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


async def _lane(context: Context, lane: list[Step]) -> None:
    """One region's steps of a stretch, one after the other."""
    for step in lane:
        await run_step(context, step)


async def run_step(context: Context, step: Step) -> None:
    """Say that the step starts, do it, say that it is done: in this order, so that a crash can be told."""
    try:
        await until_allowed(context, step)
        context.journal.say(step.id, "started")
        await STAGES[step.stage](context, step)
    except Stopped as stop:
        context.journal.failed(step, stop.ending, stop.reason, EXIT_CODES[stop.ending])
        raise Stopped(stop.ending, f"{step.id}: {stop.reason}") from stop
    except TidegateError as error:
        context.journal.failed(step, Ending.FAILED, str(error), error.exit_code)
        raise
    context.journal.say(step.id, "done")


def _undo_promotion(context: Context) -> None:
    """A delivery that ends while it moves the aliases may have moved some of them; those of others stay as they are."""
    finalize = {step.id for step in context.plan.steps if step.stage is StageName.FINALIZE}
    try:
        if any(event.step in finalize for event in context.journal.recorded()):
            context.registry.reinstate(context.plan.champion)
    except TidegateError as error:
        context.journal.try_to_say("delivery", "evidence", f"the aliases may be wrong: {error}")


async def give_up(context: Context, ending: Ending, reason: str, exit_code: ExitCode) -> Result:
    """Take every region back, mark the version, close the ledger. A second cancellation changes nothing."""
    await unwind(context)
    _undo_promotion(context)
    tags = {"tidegate.outcome": str(ending), "tidegate.reason": reason}
    try:
        context.registry.mark(context.plan.version, tags)
    # The regions are back already: a tag that is missing must not change how the delivery ended.
    except TidegateError as error:
        context.journal.try_to_say("delivery", "evidence", f"the version could not be marked: {error}")
    return context.journal.closed(ending, reason, exit_code)
