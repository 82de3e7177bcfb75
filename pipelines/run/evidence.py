"""Evidence of live traffic, and asking a stage's gates until they decide, the time is over, or the region breaks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from gates.analyses.mean import assessing
from gates.analyses.queries import WithQueries, asking_prometheus
from gates.evidence.batch import Batch, Source
from gates.model import ArmKey, GateOutcome, Verdict, blind, worst
from gates.ports import EvidenceSource
from gates.sequential_test import AnalysisPlan
from pipelines.errors import Stopped, by_others
from pipelines.events.artifacts import RecordedTrial
from pipelines.model import ENDING_OF, PlanStep
from pipelines.run.context import Context
from pipelines.run.regions import refuse_dead_canary
from pipelines.spec.delivery import CanaryStage, ShadowStage
from tidegate.core.errors import OutsideError
from tidegate.core.threads import call_in_thread


@dataclass
class EvidenceStream:
    """One source of one comparison; every request ends in exactly one of its windows."""

    source: EvidenceSource
    stable: ArmKey
    canary: ArmKey
    since: datetime
    """Where the next window begins."""
    look: timedelta
    """How long a window is at least."""

    def next(self, now: datetime, *, final: bool) -> Batch | None:
        """The next window, once it is long enough and everything in it is known; the last one may be shorter."""
        until = now - self.source.settles_within
        length = until - self.since
        if length < self.look and not (final and length > timedelta(0)):
            return None
        batch = self.source.batch(self.stable, self.canary, self.since, until)
        self.since = until
        return batch


def evidence_streams(
    context: Context,
    arms: tuple[ArmKey, ArmKey],
    *,
    users: bool = True,
    terms: AnalysisPlan | None = None,
) -> list[EvidenceStream]:
    """The proxies and, when somebody writes down what users see, the users; with what the gates ask beyond counts."""
    proxy, seen = context.proxy, context.users if users else None
    if terms and context.queries and (asking := asking_prometheus(terms.settings)):
        proxy = WithQueries(proxy, context.queries, asking)
    if terms and (traced := assessing(terms.settings)):
        proxy = WithQueries(proxy, context.registry.assessed, traced)
    now, look = context.clock.now(), context.spec.look
    return [EvidenceStream(source, *arms, now, look) for source in (proxy, seen) if source is not None]


def counters(context: Context, *, users: bool = True) -> Mapping[str, tuple[Source, ...]]:
    """Who counts live traffic for which gate; the proxies alone where nobody writes down what users see."""
    found = context.spec.sources_in("canary")
    if users and context.users is not None:
        return found
    return {gate: ("proxy",) if "users" in by else by for gate, by in found.items()}


async def take_new(trial: RecordedTrial, feeds: Sequence[EvidenceStream], now: datetime, *, final: bool) -> None:
    """Take what is new from every feed."""
    for feed in feeds:
        # In threads: reading Prometheus and record files would hold up everything else of the delivery.
        batch = await call_in_thread(feed.next, now, final=final)
        if batch is not None:
            trial.take(batch)


async def look(
    trial: RecordedTrial, feeds: Sequence[EvidenceStream], now: datetime, *, final: bool
) -> Sequence[Verdict]:
    """Take what is new, and ask all gates."""
    await take_new(trial, feeds, now, final=final)
    return trial.verdicts(deadline_passed=final)


LOOK_SECONDS = 2.0
"""Between two looks: Prometheus has nothing new sooner."""

Ask = Callable[[bool], Awaitable[Sequence[Verdict]]]
"""Called with whether the time is over; answers with every gate's verdict."""


class Gatherer(Protocol):
    """What a stage gathers evidence by besides its feeds."""

    def drain(self) -> Batch:
        """What came since the last call."""
        ...

    def blind(self) -> Iterable[Verdict]:
        """Why it says nothing, where it does."""
        ...


async def watch_trial(
    context: Context,
    step: PlanStep,
    trial: RecordedTrial,
    feeds: Sequence[EvidenceStream],
    settings: ShadowStage | CanaryStage,
    *,
    gatherers: Sequence[Gatherer],
) -> None:
    """As `watch`, of a stage that is asked by its feeds, and by what it gathers itself.

    `feeds` are where it is counted what users, copies and engines do, `gatherers` by whom the stage gathers more.
    """
    taken = context.clock.now()

    async def ask(final: bool) -> Sequence[Verdict]:
        nonlocal taken
        now = context.clock.now()
        if final or now - taken >= context.spec.look:
            for each in gatherers:
                trial.take(each.drain())
            taken = now
        return [*await look(trial, feeds, now, final=final), *(said for each in gatherers for said in each.blind())]

    await watch(context, step, ask, at_least=settings.at_least.total_seconds(), within=settings.within.total_seconds())


async def watch(context: Context, step: PlanStep, ask: Ask, *, at_least: float = 0.0, within: float) -> None:
    """Return when every gate passes; the stage lasts so many seconds at least, and at most.

    Raises:
        Stopped: when a gate fails, the time is over without a verdict, or the canary is gone.
    """
    start = context.clock.monotonic()
    last_seen = start
    while True:
        # The region first: what gates say of a canary that is gone, or at another weight, is of no use.
        state = await context.fleet(step).observe()
        refuse_dead_canary(state, context.plan.on_trial)
        # Evidence at a weight that this delivery did not set says nothing about this step.
        if step.weight is not None and state.weight != step.weight:
            by = f", last written by {state.route_writer}" if state.route_writer else ""
            raise by_others(f"somebody else set the weight to {state.weight} %; this delivery set {step.weight} %{by}")
        context.journal.check()
        elapsed = context.clock.monotonic() - start
        try:
            verdicts = await ask(elapsed >= within)
        except OutsideError as error:
            verdicts = [blind(str(error))]
        for verdict in verdicts:
            context.journal.verdict(step, verdict, context.trials.written(step.id))
        outcome = worst(verdict.outcome for verdict in verdicts)
        if outcome is not GateOutcome.ERROR:
            last_seen = context.clock.monotonic()
        is_blind = context.clock.monotonic() - last_seen >= context.spec.patience.metrics.total_seconds()
        # A pass comes first: evidence that arrives with the deadline is evidence.
        # While the next step could not begin, the canary is watched on: one with users is not left alone.
        stays = context.journal.is_behind and elapsed < within
        if outcome is GateOutcome.PASS and elapsed >= at_least and not stays:
            return
        if outcome is GateOutcome.FAIL or elapsed >= within or is_blind:
            culprits = (f"gate {each.gate}: {each.reason}" for each in verdicts if each.outcome is outcome)
            raise Stopped(ENDING_OF[outcome], "; ".join(culprits))
        await context.clock.sleep(LOOK_SECONDS)
