"""canary and bake: users meet the new version, first some of a region's, then all of a wave's."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from gates.analyses.errors import ErrorsGate
from gates.evidence.batch import Batch
from gates.model import ArmKey, GateOutcome, Verdict
from gates.sequential_test import analysis_plan_of
from pipelines.errors import Stopped
from pipelines.events.artifacts import RecordedTrial
from pipelines.model import Ending, PlanStep
from pipelines.plan.gates import budget_shares, terms_of
from pipelines.run.context import Context
from pipelines.run.evidence import (
    LOOK_SECONDS,
    EvidenceStream,
    counters,
    evidence_streams,
    take_new,
    watch_trial,
)
from pipelines.run.regions import promoted_verdict, refuse_dead_canary
from pipelines.run.user_answers import answered_users
from tidegate.core.errors import OutsideError
from tidegate.core.threads import call_in_thread

PAST = timedelta(minutes=30)
"""How far back. The longer, the less pods must be taken to differ: simulated, five minutes cost a third more time."""
WINDOW = timedelta(seconds=30)
"""As long as the shortest block over which pods are compared (`gates.stats.spread`)."""
SILENCE = timedelta(minutes=5)
"""Stable was not there yet when nobody asked it for so long."""


async def take_baseline(trial: RecordedTrial, feeds: Sequence[EvidenceStream], now: datetime) -> None:
    """Let the trial see stable alone, window by window.

    It is what to bet on, and no evidence: verdicts count from here on, when both arms serve at the same time.
    """
    for feed in feeds:
        # In a thread, as every reading: everything else of the delivery goes on meanwhile.
        for batch in await call_in_thread(baseline_of, feed, now - feed.source.settles_within):
            trial.take(batch)
    trial.count_again()


def baseline_of(feed: EvidenceStream, until: datetime) -> Sequence[Batch]:
    """Windows that touch and end at `until`, the oldest first; those before stable's first request are left out."""
    found: list[Batch] = []
    known = 0
    # What cannot be read is no past; a source that is gone is told of by the next look.
    with suppress(OutsideError):
        while (len(found) - known) * WINDOW < SILENCE and len(found) * WINDOW < PAST:
            end = until - len(found) * WINDOW
            found.append(feed.source.batch(feed.stable, feed.canary, end - WINDOW, end).of_stable)
            known = len(found) if any(pod.requests for pod in found[-1].arms) else known
    return found[:known][::-1]


async def canary(context: Context, step: PlanStep) -> None:
    """Shift to the step's weight and watch; evidence against the canary is kept from weight to weight."""
    settings = context.spec.canary
    assert settings is not None, f"{step.id} without a canary stage"
    assert step.weight is not None, f"{step.id} without a weight"
    fleet = context.fleet(step)
    refuse_dead_canary(await fleet.observe(), context.plan.on_trial)
    name = f"canary@{step.region}"
    terms = terms_of(context.spec, settings, step.region or "", sources=counters(context))
    trial = context.trials.open(name, terms, step.id)
    feeds = evidence_streams(context, context.arms(step), terms=terms)
    if trial.is_new:
        await take_baseline(trial, feeds, context.clock.now())
    state = await fleet.shift(step.weight)
    context.journal.traffic(step, state)
    for feed in feeds:
        feed.since = context.clock.now()
    try:
        async with answered_users(context, step, state, settings) as answers:
            await watch_trial(context, step, trial, feeds, settings, gatherers=answers)
    finally:
        context.trials.keep(name)


_Comparison = tuple[RecordedTrial, list[EvidenceStream]]
"""Of a promoted region with one that still serves the champion."""


async def bake(context: Context, step: PlanStep) -> None:
    """Look again and again until the time is over.

    Raises:
        Stopped: when a region of the wave is not well, or fails more requests than one with the champion; or when
            somebody else took it away from the version.
    """
    regions = context.spec.regions.waves[step.wave - 1]
    compared = {region: _comparison(context, step, region) for region in regions}
    start, over = context.clock.monotonic(), False
    try:
        while not over:
            context.journal.check()
            over = context.clock.monotonic() - start >= context.spec.regions.bake.total_seconds()
            for region, comparison in compared.items():
                for verdict in await _verdicts(context, region, comparison, final=over):
                    context.journal.verdict(step, verdict, context.trials.written(step.id), region=region)
                    # Nothing is on trial: only proof that the region is not well rolls it back, no lack of evidence.
                    if verdict.outcome is GateOutcome.FAIL:
                        raise Stopped(Ending.ROLLED_BACK, f"{region}: gate {verdict.gate}: {verdict.reason}")
            if not over:
                await context.clock.sleep(LOOK_SECONDS)
    finally:
        for region in regions:
            if compared[region]:
                context.trials.keep(f"{step.id}/{region}")


async def _verdicts(context: Context, region: str, compared: _Comparison | None, *, final: bool) -> Sequence[Verdict]:
    verdicts = [await promoted_verdict(context.fleets[region], context.plan.on_trial)]
    if compared:
        await take_new(*compared, context.clock.now(), final=final)
        # There is no deadline by which a promoted region would have to prove anything.
        verdicts += compared[0].verdicts(deadline_passed=False)
    return verdicts


def _comparison(context: Context, step: PlanStep, region: str) -> _Comparison | None:
    """With one region of a later wave: it still serves the champion. None when there is none, or no errors gate."""
    names = context.plan.regions
    later = names[names.index(context.spec.regions.waves[step.wave - 1][-1]) + 1 :]
    asked = tuple(context.spec.gates.of(ErrorsGate))
    if not later or not asked:
        return None
    name = f"{step.id}/{region}"
    control = ArmKey(region=later[0], role="stable", version=context.plan.in_production)
    promoted = ArmKey(region=region, role="stable", version=context.plan.on_trial)
    sources = {gate: by for gate, by in counters(context).items() if gate in asked}
    share = budget_shares(context.spec)[name]
    terms = analysis_plan_of(context.spec.gates, asked, sources=sources, share=share)
    return context.trials.open(name, terms, step.id), evidence_streams(context, (control, promoted))
