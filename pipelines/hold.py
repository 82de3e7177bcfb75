"""Holds a step back until people have approved it and no freeze holds. What it waits for stands in the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

from pipelines.approvals import FREEZE, answering, patience
from pipelines.context import Context
from pipelines.errors import Stopped
from pipelines.freezes import Frozen, frozen
from pipelines.model import Ending, StageName, Step
from pipelines.payloads import Waiting
from pipelines.ports import Event
from pipelines.recorded import answers, outcome_of
from pipelines.watch import refuse_dead_canary
from tidegate.core.errors import OutsideError

POLL_SECONDS = 5.0
"""Between two looks at the ledger: how long a person who approved sees nothing happen."""
FROZEN = frozenset({StageName.DEPLOY, StageName.SHADOW, StageName.CANARY, StageName.PROMOTE})
"""What a freeze holds: whatever changes a region. A bake goes on, since it only looks."""


async def until_allowed(context: Context, step: Step) -> None:
    """Return when the step may begin.

    Raises:
        Stopped: somebody refused, nobody answered in time, the delivery ended, or the canary died meanwhile.
    """
    for asked in step.approvals:
        await _approved(context, step, asked)
    if step.stage in FROZEN:
        await _thawed(context, step)


async def _approved(context: Context, step: Step, asked: str) -> None:
    limit = patience(context.spec.approvals, asked, context.plan.steps)
    since: datetime | None = None
    while True:
        events = await _recorded(context)
        answer = answers(events).get(asked)
        if answer is not None:
            _heed(asked, answer)
            return
        since = since or _asked_at(events, asked)
        if since is None:
            since = context.clock.now()
            await _ask(context, step, asked)
        if context.clock.now() - since >= limit:
            raise Stopped(Ending.INCONCLUSIVE, f"nobody has approved or refused {asked} since {since:%F %H:%M} UTC")
        await _pause(context, step, events)


async def _ask(context: Context, step: Step, asked: str) -> None:
    """Ask people once, however many regions wait for the same answer."""
    if asked not in context.journal.asked:
        context.journal.asked.add(asked)
        how = answering(context.journal.delivery, asked)
        await context.journal.say(step.id, "waiting", f"for an approval of {asked}: {how}", {"approval": asked})


def _heed(asked: str, answer: Event) -> None:
    if answer.kind == "refused":
        raise Stopped(Ending.ROLLED_BACK, f"{asked} was refused by {answer.message}")


async def _thawed(context: Context, step: Step) -> None:
    told: Frozen | None = None
    while (now := frozen(context.spec.freeze, context.clock.now())) is not None:
        events = await _recorded(context)
        answer = answers(events).get(FREEZE)
        if answer is not None:
            _heed(FREEZE, answer)
            return
        if now != told:
            data = {"frozen_until": now.until.isoformat(), "reason": now.reason}
            await context.journal.say(step.id, "waiting", str(now), data)
            told = now
        await _pause(context, step, events)


async def _pause(context: Context, step: Step, events: Sequence[Event]) -> None:
    """Until the next look; what happens to the delivery or to its canary meanwhile ends the waiting."""
    ended = outcome_of(events, context.journal.delivery)
    if ended is not None:
        raise Stopped(Ending.INTERRUPTED, f"the delivery ended meanwhile: {ended.reason}")
    if step.stage in (StageName.CANARY, StageName.PROMOTE):
        state = await context.fleet(step).observe()
        # One that was promoted by a process that died is no canary any more, and needs none.
        if state.stable is None or state.stable.version != context.plan.version.version:
            refuse_dead_canary(context, state)
    await context.clock.sleep(POLL_SECONDS)


async def _recorded(context: Context) -> Sequence[Event]:
    """What stands in the ledger; nothing while it cannot be read: who waits for hours can wait for a registry."""
    with suppress(OutsideError):
        return await context.journal.recorded()
    return ()


def _asked_at(events: Sequence[Event], asked: str) -> datetime | None:
    """When that was first asked, perhaps by a process before this one."""
    waiting = (each for each in events if each.kind == "waiting")
    return next((each.at for each in waiting if Waiting.model_validate(each.data).approval == asked), None)
