"""canary and bake: users meet the new version, first some of a region's, then all of a wave's.

Answers that users got may be put to the judge, as engines kept a sample of them. The arms answered different prompts,
so each answer is scored by itself, and scores of both arms are compared one to one as they came: whom a request is for
is drawn by the proxy, so that prompts of both arms are alike in everything but chance. What was judged is forgotten at
once; only scores stay.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from itertools import count
from types import TracebackType
from typing import Self

from gates.analyses.errors import ErrorsGate
from gates.answers.samples import UserSample
from gates.evidence.batch import ArmName, Batch
from gates.judge.control import ControlReport
from gates.judge.judge import Judge, ScoredPairs
from gates.judge.spec import JudgeGate
from gates.model import ArmKey, GateOutcome, Verdict, blind
from gates.sequential_test import analysis_plan_of
from pipelines.errors import Stopped
from pipelines.events.artifacts import RecordedTrial
from pipelines.events.payloads import StepProgress
from pipelines.model import Ending, PlanStep
from pipelines.plan.gates import budget_shares, terms_of
from pipelines.ports import UserSamples
from pipelines.run.context import Context
from pipelines.run.evidence import (
    LOOK_SECONDS,
    EvidenceStream,
    counters,
    drift_reference,
    evidence_streams,
    take_new,
    watch_trial,
)
from pipelines.run.regions import both_arms, promoted_verdict, refuse_dead_canary
from rollouts.model import EngineSet, RegionState
from tidegate.core.clock import Clock
from tidegate.core.errors import OutsideError
from tidegate.core.threads import call_in_thread

TAKE_SECONDS = 2.0
"""Between two times at which engines are asked for what they kept."""
RENEW_SECONDS = 15.0
"""Between two times at which engines hear that somebody still wants samples."""
MOST_WAITING = 50
"""Samples of one arm that wait for one of the other; the oldest goes."""
MOST_UNDER_WAY = 32
"""Pairs that a judge has not answered yet; what comes meanwhile is not judged."""


class SampledAnswers:
    """The judged answers of one region's users, while a share of them is on the canary; entered while that is so."""

    def __init__(
        self,
        samples: UserSamples,
        judge: Judge,
        clock: Clock,
        arms: Mapping[ArmName, EngineSet],
        *,
        region: str,
        shares: Mapping[str, float],
    ) -> None:
        """`shares` says by version how many of its requests engines are to keep, 0 to 1."""
        self._samples, self._judge, self._clock = samples, judge, clock
        self._scored = ScoredPairs(judge)
        self._arms, self._region, self._shares = arms, region, shares
        self._waiting: dict[ArmName, deque[UserSample]] = {arm: deque(maxlen=MOST_WAITING) for arm in ArmName}
        self._numbers = count()
        self._under_way = 0
        self._counts: Counter[str] = Counter()
        self._not_taken = ""
        """Why not all could be taken the last time."""
        self._not_renewed = ""
        """Why engines could not be asked again; they go on for a while."""
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._samples.keep(self._region, self._shares)
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._task is not None, "entered before"
        self._task.cancel()
        await asyncio.wait([self._task])
        self._waiting = {arm: deque() for arm in ArmName}
        await self._samples.end(self._region)

    async def _run(self) -> None:
        renewed = self._clock.monotonic()
        async with asyncio.TaskGroup() as group:
            while True:
                await self._clock.sleep(TAKE_SECONDS)
                if self._clock.monotonic() - renewed >= RENEW_SECONDS:
                    await self._renew()
                    renewed = self._clock.monotonic()
                await self._take()
                while all(self._waiting.values()):
                    stable, canary = (self._waiting[arm].popleft() for arm in (ArmName.STABLE, ArmName.CANARY))
                    # Two empty answers would be worth the same, and show nothing.
                    if self._under_way < MOST_UNDER_WAY and (stable.answer.strip() or canary.answer.strip()):
                        self._under_way += 1
                        group.create_task(self._score(stable, canary))

    def drain(self) -> Batch:
        """What came since the last call; it waits until the judge has passed its control."""
        assert self._task is not None, "entered before"
        if self._task.done():
            # It only ever ends by a bug, which must not look like users who do not ask.
            self._task.result()
        found = self._scored.drain()
        if not self._counts[ArmName.CANARY]:
            found["missing"] = {"judge": "engines have kept no answer of the canary's users yet"}
        return Batch(time=self._clock.now().timestamp(), source="samples", **found)

    def blind(self) -> Iterator[Verdict]:
        """Nothing speaks against a canary of which nothing can be taken, and nothing for it."""
        if told := self._not_taken or self._not_renewed:
            yield blind(told)

    @property
    def control(self) -> ControlReport:
        """Whether the judge may be believed."""
        return self._judge.control

    @property
    def counts(self) -> Mapping[str, int]:
        """Answers that were taken, by arm; of these, `left`: not whole, because a user left or a stream was cut."""
        return dict(self._counts)

    async def _renew(self) -> None:
        try:
            await self._samples.keep(self._region, self._shares)
            self._not_renewed = ""
        except OutsideError as error:
            self._not_renewed = str(error)

    async def _take(self) -> None:
        problems: list[str] = []
        for arm, engine in self._arms.items():
            try:
                taken = await self._samples.take(self._region, engine)
            except OutsideError as error:
                problems.append(str(error))
                continue
            problems += [taken.problem] if taken.problem else []
            for sample in taken.samples:
                self._counts[arm] += 1
                if sample.whole:
                    self._waiting[arm].append(sample)
                else:
                    self._counts["left"] += 1
        self._not_taken = "; ".join(problems)

    async def _score(self, stable: UserSample, canary: UserSample) -> None:
        number = next(self._numbers)
        try:
            first, second = await asyncio.gather(
                self._judge.judge(f"stable {number}", stable.prompt, stable.answer, right=True),
                self._judge.judge(f"canary {number}", canary.prompt, canary.answer, right=False),
            )
        finally:
            self._under_way -= 1
        self._scored.add(first, second)


def _judge_asked(context: Context, asked: Sequence[str]) -> bool:
    judged = context.spec.gates.of(JudgeGate).keys() & set(asked)
    return bool(judged) and context.spec.samples is not None and context.readers.judges is not None


async def require_samples(context: Context) -> None:
    """Before anything is deployed: the champion's engines can keep samples, where its canary stage needs them.

    Raises:
        Refused: they cannot.
    """
    settings, samples = context.spec.canary, context.samples
    if settings is None or samples is None or not _judge_asked(context, settings.gates):
        return
    regions = context.plan.regions
    await asyncio.gather(*(samples.require(region, context.plan.in_production) for region in regions))


@asynccontextmanager
async def users_answers(
    context: Context, step: PlanStep, state: RegionState, asked: Sequence[str]
) -> AsyncIterator[SampledAnswers | None]:
    """Have users' answers judged meanwhile, where a gate asks for it; afterwards engines keep nothing."""
    settings, samples, judges = context.spec.samples, context.samples, context.readers.judges
    if settings is None or judges is None or not _judge_asked(context, asked):
        yield None
        return
    assert samples is not None, "backends without samples were refused"
    stable, canary = both_arms(state)
    part = state.weight / 100
    answers = SampledAnswers(
        samples,
        await judges(False),
        context.clock,
        {ArmName.STABLE: stable, ArmName.CANARY: canary},
        region=state.region,
        shares={stable.version: settings.share_of(1 - part), canary.version: settings.share_of(part)},
    )
    try:
        async with answers:
            yield answers
    finally:
        told = StepProgress.model_validate({**answers.control.model_dump(mode="json"), "answers": answers.counts})
        context.journal.tell(step.id, told, f"judge of users' answers: {answers.control.reason}")


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
    arms = context.arms(step)
    reference = context.trials.reference(name) or await call_in_thread(drift_reference, context, arms[0])
    by = counters(context)
    terms = terms_of(context.spec, settings, step.region or "", sources=by, reference=reference)
    trial = context.trials.open(name, terms, step.id)
    feeds = evidence_streams(context, arms, reference=reference, terms=terms)
    if trial.is_new:
        await take_baseline(trial, feeds, context.clock.now())
    state = await fleet.shift(step.weight)
    context.journal.traffic(step, state)
    for feed in feeds:
        feed.since = context.clock.now()
    try:
        async with users_answers(context, step, state, settings.gates) as answers:
            if answers:
                await watch_trial(context, step, trial, feeds, settings, drain=answers.drain, blind=answers.blind)
            else:
                await watch_trial(context, step, trial, feeds, settings)
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
                    # Nothing is on trial: only proof that the region is not well takes it back, no lack of evidence.
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
