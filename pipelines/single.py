"""One step of a delivery as a process of its own; the ledger is all that it shares with those before and after it.

A workflow runs these in the plan's order, those of a wave's regions side by side. Each may be said again after
its process was killed; a last one closes the delivery, whatever became of the others.
"""

from __future__ import annotations

import asyncio

from pipelines.context import Context
from pipelines.errors import Stopped
from pipelines.model import EXIT_CODES, Ending, Result, Step
from pipelines.recorded import asked_to_stop, done_steps, first_failure, missing_before, outcome_of, step_of
from pipelines.resumption import final_failure
from pipelines.run import cancellation_is_heard, delivered, give_up, run_step
from pipelines.unwind import unwind
from tidegate.core.errors import ExitCode, OutsideError, TidegateError, UsageError
from tidegate.core.model import Value


class Taken(Value):
    """What became of one step."""

    step: str
    done: bool
    reason: str
    exit_code: ExitCode


async def take_step(context: Context, wanted: str) -> Taken:
    """Do the step with that id; one that is done already is not done again.

    A verdict takes the step's region back at once: users do not wait for whoever closes the delivery.

    Raises:
        UsageError: there is no such step, or one before it is not done.
        OutsideError: something was not there; the step may be said again.
    """
    step, done = step_of(context.plan, wanted), done_steps(await context.journal.recorded())
    if step.id in done:
        return Taken(step=step.id, done=True, reason="done before", exit_code=ExitCode.DELIVERED)
    failure = await final_failure(context)
    if failure:
        reason = f"the delivery goes no further: {failure.step}: {failure.reason}"
        return Taken(step=step.id, done=False, reason=reason, exit_code=EXIT_CODES[failure.ending])
    if asked := asked_to_stop(await context.journal.recorded()):
        # Not worth another try, and no verdict: whoever closes the delivery takes its regions back.
        return Taken(step=step.id, done=False, reason=asked, exit_code=ExitCode.INTERRUPTED)
    missing = missing_before(context.plan, step, done)
    if missing:
        raise UsageError(f"{step.id} comes after {missing[0]}, which is not done", hint="say its steps in their order")
    return await _take(context, step)


async def _take(context: Context, step: Step) -> Taken:
    try:
        await run_step(context, step)
        # Whoever comes next reads in the ledger that this is done.
        await context.journal.written()
    except Stopped as stop:
        await unwind(context, [step.region] if step.region else context.plan.regions)
        await context.journal.settle()
        return Taken(step=step.id, done=False, reason=stop.reason, exit_code=stop.exit_code)
    except asyncio.CancelledError:
        cancellation_is_heard()
        context.journal.failed(step, Ending.INTERRUPTED, "asked to stop before the end", ExitCode.INTERRUPTED)
        await context.journal.settle()
        # No verdict: a node that is emptied asks so too, and then the step is to be said again elsewhere.
        return Taken(step=step.id, done=False, reason="asked to stop", exit_code=ExitCode.OUTSIDE)
    except TidegateError:
        await context.journal.settle()
        raise
    except ModuleNotFoundError as error:
        raise OutsideError(f"{step.id} needs the package {error.name}, which is not installed here") from error
    # A bug keeps its traceback; whoever closes the delivery finds here why it ended.
    except Exception as bug:
        context.journal.failed(step, Ending.FAILED, f"a bug in tidegate: {bug!r}", ExitCode.INTERNAL)
        await context.journal.settle()
        raise
    return Taken(step=step.id, done=True, reason="done", exit_code=ExitCode.DELIVERED)


async def close(context: Context) -> Result:
    """End the delivery: delivered when every step is done, else taken back everywhere. May be said again.

    Raises:
        DeliveryLost: another process has closed it or carries it on; nothing was touched.
    """
    events = await context.journal.recorded()
    ended = outcome_of(events, context.journal.delivery)
    if ended is not None:
        await context.journal.seal(ended)
        return ended
    # Before anything is touched: a delivery that was lost may have a successor, whose regions these are now.
    await context.journal.say("delivery", "evidence", "closing")
    done = done_steps(events)
    left = [step.id for step in context.plan.steps if step.id not in done]
    if not left:
        return await delivered(context)
    failure = first_failure(events)
    if failure:
        reason = f"{failure.step}: {failure.reason}"
        return await give_up(context, failure.ending, reason, ExitCode(failure.exit_code))
    return await give_up(context, Ending.INTERRUPTED, f"ended before {left[0]} was done", ExitCode.INTERRUPTED)
