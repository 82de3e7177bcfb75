"""Holds a step back until people have approved it and no freeze holds. What it waits for stands in the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from pipelines.authority.approvals import (
    FREEZE,
    FROZEN,
    ApprovalQuestion,
    Frozen,
    answering,
    asked_at,
    evidence_digest,
    freeze_digest,
    frozen,
    patience,
    plan_digest,
    terms_of,
)
from pipelines.authority.verification import AnswerVerifier
from pipelines.errors import Stopped
from pipelines.events.history import outcome_of
from pipelines.events.payloads import AnswerIgnored, AnswersAllow, Waiting
from pipelines.model import Ending, PlanStep, StageName
from pipelines.run.context import Context
from pipelines.run.regions import is_on, refuse_dead_canary
from registry.model import Event, EventKind
from tidegate.core.errors import OutsideError

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
    hearing = AnswerVerifier(context.identities)
    since: datetime | None = None
    # Verdicts may still be on their way to the ledger: people are asked of what everybody can see there.
    await context.journal.written()
    while True:
        events = await _recorded(context)
        if events is not None or since is None:
            question = _question(context, asked, events or ())
            since = asked_at(events or (), question)
            # A name counts whenever it was said; what is proven, of what was there to see when it was asked.
            if (since or question.names) and await _answered(context, step, hearing, question, events or ()):
                return
            since = since or await _ask(context, step, question, limit)
        if context.clock.now() - since >= limit:
            raise Stopped(Ending.INCONCLUSIVE, f"nobody has approved or refused {asked} since {since:%F %H:%M} UTC")
        await _pause(context, step, events or ())


def _question(context: Context, asked: str, events: Sequence[Event]) -> ApprovalQuestion:
    terms = terms_of(context.spec.approvals, asked, context.plan.steps)
    evidence = evidence_digest(context.plan, asked, events)
    delivery, plan = context.journal.delivery, plan_digest(events)
    question = ApprovalQuestion(name=asked, terms=terms, delivery=delivery, plan=plan, evidence=evidence, since=None)
    return question if question.names else question.model_copy(update={"since": asked_at(events, question)})


async def _ask(context: Context, step: PlanStep, question: ApprovalQuestion, limit: timedelta) -> datetime:
    """Ask people once, however many regions wait for the same answer: whom, until when, and what there is to see."""
    now, key = context.clock.now(), f"{question.name} {question.evidence}"
    if key not in context.journal.asked:
        context.journal.asked.add(key)
        how = answering(context.journal.delivery, question.name, names=question.names)
        who = "" if question.names else f" by {question.asked_of()}"
        more = {} if question.names else {"evidence": question.evidence, "by": question.asked_of()}
        message = f"for an approval of {question.name}{who} until {now + limit:%F %H:%M} UTC: {how}"
        await context.journal.say(step.id, Waiting(approval=question.name, **more), message)
    return now


async def _answered(
    context: Context, step: PlanStep, hearing: AnswerVerifier, question: ApprovalQuestion, events: Sequence[Event]
) -> bool:
    """Whether enough people have said yes; whose word does not count is told once."""
    found = await hearing.answers(question, events)
    told = {AnswerIgnored.of(event).answer for event in events if event.kind == EventKind.IGNORED}
    for each in found.ignored:
        if each.key not in told:
            message = f"an answer to {question.name} by {each.by} does not count: {each.why}"
            await context.journal.say(step.id, AnswerIgnored(approval=question.name, answer=each.key), message)
    if found.refusal is not None:
        raise Stopped(Ending.ROLLED_BACK, f"{question.name} was refused by {found.refusal}")
    if found.enough:
        by = tuple(str(each) for each in found.approvals)
        message = f"{question.name} was approved by {'; '.join(by)}"
        await context.journal.say(step.id, AnswersAllow(approval=question.name, by=by), message)
    return found.enough


async def _wait_for_freeze(context: Context, step: PlanStep) -> None:
    hearing = AnswerVerifier(context.identities)
    told: Frozen | None = None
    while (now := frozen(context.spec.freeze, context.clock.now())) is not None:
        events = await _recorded(context)
        question = _lifting(context, now, events or ())
        if events is not None and await _answered(context, step, hearing, question, events):
            return
        if now != told:
            more = {} if question.names else {"evidence": question.evidence, "by": question.asked_of()}
            waiting = Waiting(frozen_until=now.until, reason=now.reason, **more)
            await context.journal.say(step.id, waiting, str(now))
            told = now
        await _pause(context, step, events or ())


def _lifting(context: Context, now: Frozen, events: Sequence[Event]) -> ApprovalQuestion:
    """Whether this one freeze shall hold up this delivery: who lifts it lifts no other."""
    return ApprovalQuestion(
        name=FREEZE,
        terms=(now.terms,),
        delivery=context.journal.delivery,
        plan=plan_digest(events),
        evidence=freeze_digest(now.until, now.reason),
        since=now.since,
    )


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
