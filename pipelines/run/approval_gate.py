"""Holds a step back until people have approved it and no freeze holds. What it waits for stands in the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from pipelines.authority.answering import AnswerVerifier
from pipelines.authority.approvals import FROZEN, Question, answering, approval, asked_at, lifting, patience
from pipelines.errors import Stopped
from pipelines.events.payloads import AnswerIgnored, AnswersAllow, Waiting
from pipelines.events.state import outcome_of
from pipelines.model import Ending, PlanStep, StageName
from pipelines.run.context import Context
from pipelines.run.regions import is_on, refuse_dead_canary
from registry.model import Event, EventKind
from tidegate.core.errors import OutsideError
from tidegate.core.threads import call_in_thread

POLL_SECONDS = 5.0
"""Seconds between reads of the ledger, and so the longest delay after an approval."""


async def wait_until_allowed(context: Context, step: PlanStep) -> None:
    """Return when the step may begin.

    Raises:
        Stopped: somebody refused, nobody answered in time, the delivery ended, or the canary died meanwhile.
    """
    for asked in step.approvals:
        await _wait_for_approval(context, step, asked)
    if step.stage in FROZEN:
        await _wait_for_freeze(context, step)


async def _wait_for_approval(context: Context, step: PlanStep, asked: str) -> None:
    limit = patience(context.spec.approvals, asked, context.plan.steps)
    verifier, delivery = AnswerVerifier(context.identities), context.journal.delivery
    since: datetime | None = None
    # Verdicts may still be on their way to the ledger: people are asked of what everybody can see there.
    await context.journal.written()
    while True:
        events = await _recorded(context)
        if events is not None:
            question = approval(context.spec, context.plan, delivery, events, asked)
            since = asked_at(events, question)
            # A name counts whenever it was said; what is proven, of what was there to see when it was asked.
            if (since or question.names) and await _answered(context, step, verifier, question, events):
                return
            since = since or await _ask(context, step, question, limit)
        if since and context.clock.now() - since >= limit:
            raise Stopped(Ending.INCONCLUSIVE, f"nobody has approved or refused {asked} since {since:%F %H:%M} UTC")
        await _pause(context, step, events or ())


async def _ask(context: Context, step: PlanStep, question: Question, limit: timedelta) -> datetime:
    """Ask people once, however many regions wait for the same answer: whom, until when, and what there is to see."""
    now, key = context.clock.now(), f"{question.name} {question.evidence}"
    if key not in context.journal.asked:
        context.journal.asked.add(key)
        how = answering(context.journal.delivery, question.name, names=question.names)
        who = "" if question.names else f" by {question.asked_of}"
        message = f"for an approval of {question.name}{who} until {now + limit:%F %H:%M} UTC: {how}"
        await context.journal.say(step.id, Waiting(approval=question.name, **_whom(question)), message)
    return now


def _whom(question: Question) -> dict[str, str]:
    return {} if question.names else {"evidence": question.evidence, "by": question.asked_of}


async def _answered(
    context: Context, step: PlanStep, verifier: AnswerVerifier, question: Question, events: Sequence[Event]
) -> bool:
    """Whether enough people have said yes; whose word does not count is told once."""
    found = await call_in_thread(verifier.tally, question, events)
    told = {AnswerIgnored.of(event).answer for event in events if event.kind == EventKind.IGNORED}
    for each in found.ignored:
        if each.key not in told:
            message = f"an answer to {question.name} by {each.person.identity} does not count: {each.ignored}"
            await context.journal.say(step.id, AnswerIgnored(approval=question.name, answer=each.key), message)
    if found.refusal is not None:
        raise Stopped(Ending.ROLLED_BACK, f"{question.name} was refused by {found.refusal}")
    if found.enough:
        by = tuple(str(each) for each in found.heard)
        message = f"{question.name} was approved by {'; '.join(by)}"
        await context.journal.say(step.id, AnswersAllow(approval=question.name, by=by), message)
    return found.enough


async def _wait_for_freeze(context: Context, step: PlanStep) -> None:
    verifier, told = AnswerVerifier(context.identities), ""
    while True:
        events = await _recorded(context)
        question = lifting(context.spec, context.journal.delivery, events or (), context.clock.now())
        if question is None or question.freeze is None:
            return
        if events is not None and await _answered(context, step, verifier, question, events):
            return
        if told != (told := str(question.freeze)):
            waiting = Waiting(frozen_until=question.freeze.until, reason=question.freeze.reason, **_whom(question))
            await context.journal.say(step.id, waiting, told)
        await _pause(context, step, events or ())


async def _pause(context: Context, step: PlanStep, events: Sequence[Event]) -> None:
    """Until the next look; what happens to the delivery or to its canary meanwhile ends the waiting."""
    ended = outcome_of(events, context.journal.delivery)
    if ended is not None:
        raise Stopped(Ending.INTERRUPTED, f"the delivery ended meanwhile: {ended.reason}")
    await refuse_unseen_death(context, step)
    await context.clock.sleep(POLL_SECONDS)


async def refuse_unseen_death(context: Context, step: PlanStep) -> None:
    """While a step waits to begin: a canary that has users already must not die unseen.

    Raises:
        Stopped: it died, or somebody else has the region by now.
    """
    if step.stage in (StageName.CANARY, StageName.PROMOTE):
        state = await context.fleet(step).observe()
        # One that was promoted by a process that died is no canary any more, and needs none.
        if not is_on(state, context.plan.on_trial):
            refuse_dead_canary(state, context.plan.on_trial)


async def _recorded(context: Context) -> Sequence[Event] | None:
    """What stands in the ledger; None while it cannot be read: who waits for hours can wait for a registry."""
    with suppress(OutsideError):
        return await context.journal.recorded()
    return None
