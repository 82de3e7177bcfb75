"""Users' answers that engines kept a sample of, on their way to the gates; what was judged is forgotten at once.

In canary the arms answered different users. A judge scores each answer by itself, and scores of both arms are compared
one to one as they came: whom a request is for is drawn by the proxy, so that prompts of both arms are alike in
everything but chance. In shadow the canary got copies: both arms keep the same requests, because what is kept is drawn
by the id that a request and its copy share, and a request and its copy are one pair.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from itertools import count
from typing import Self

import scipy

from gates.answers.likeness import paired_answer, read_reply
from gates.answers.samples import TakenSamples, UserSample
from gates.evidence.batch import ArmName, Batch, PairedAnswer, PairedReply
from gates.judge.judge import ScoredPairs
from gates.judge.spec import JudgeGate
from gates.model import EngineReply, Verdict, blind
from gates.ports import LanguageDetector
from pipelines.events.payloads import StepProgress
from pipelines.model import PlanStep
from pipelines.ports import UserSamples
from pipelines.run.context import Context
from pipelines.run.regions import both_arms
from pipelines.spec.delivery import CanaryStage, ShadowStage
from rollouts.model import EngineSet, RegionState
from tidegate.core.clock import Clock
from tidegate.core.errors import OutsideError
from tidegate.core.process import meanwhile

TAKE_SECONDS = 2.0
"""Between two times at which engines are asked for what they kept."""
RENEW_SECONDS = 15.0
"""Between two times at which engines hear that somebody still wants samples."""
MOST_WAITING = 50
"""Samples of one arm that wait for one of the other; the oldest goes."""
MOST_UNDER_WAY = 32
"""Pairs that a judge has not answered yet; what comes meanwhile is not judged."""
SETTLES_SECONDS = 30.0
"""After an answer to a user the answer to its copy is waited for so long."""
MOST_HELD = 500
"""Samples of one arm that wait for that; the oldest goes."""
COPIES_LOOKED_AT = 100
"""The last requests of which it is told how many have an answer to their copy."""
LEAST_COPIES = 0.8
"""Of these, the share of copies that must have been answered: which ones a canary leaves out is no accident."""
BY_CHANCE = 0.01

LANGUAGE_CHARACTERS = 1000
"""Of a prompt, that tell its language."""

Pair = tuple[UserSample, UserSample]


class CopiedRequests:
    """Samples of users' requests and of their copies, joined once both had their time."""

    def __init__(self, copied: float) -> None:
        """`copied` is the share of users' requests that are, 0 to 1."""
        self._copied = copied
        self._held: dict[ArmName, dict[tuple[str, str], tuple[float, UserSample]]] = {arm: {} for arm in ArmName}
        self._heard: float | None = None
        """When an engine of the canary first gave something away, after which all of them did."""
        self._found: deque[bool] = deque(maxlen=COPIES_LOOKED_AT)

    def add(self, arm: ArmName, sample: UserSample, now: float) -> None:
        """Hold a sample that was taken `now`, in seconds of any clock."""
        if arm is ArmName.CANARY and self._heard is None:
            self._heard = now
        held = self._held[arm]
        # By the prompt too: who asks may choose the id, and use it again for something else.
        held.setdefault((sample.pair, sample.prompt), (now, sample))
        if len(held) > MOST_HELD:
            del held[next(iter(held))]

    def unheard(self) -> None:
        """Not all engines of the canary keep samples yet."""
        self._heard = None

    def joined(self, now: float) -> Iterator[Pair]:
        """What stable answered in full, each with what the canary answered; both are held no longer.

        What was asked before all engines of the canary kept samples is left out.
        """
        stable, canary = (self._held[arm] for arm in (ArmName.STABLE, ArmName.CANARY))
        for key in [key for key, (since, _) in stable.items() if now - since >= SETTLES_SECONDS]:
            since, sample = stable.pop(key)
            _, copy = canary.pop(key, (now, None))
            if self._heard is not None and since >= self._heard + SETTLES_SECONDS:
                self._found.append(copy is not None)
                if sample.whole and copy:
                    yield sample, copy
        for key in [key for key, (since, _) in canary.items() if now - since >= 2 * SETTLES_SECONDS]:
            del canary[key]

    @property
    def lacking(self) -> str:
        """Why nothing may pass: fewer copies were answered than chance explains; empty when all is well."""
        found, asked = sum(self._found), len(self._found)
        if not asked or scipy.special.bdtr(found, asked, LEAST_COPIES * self._copied) >= BY_CHANCE:
            return ""
        expected = f"{self._copied * 100:g} % are copied to the canary"
        return f"of the last {asked} sampled requests of users {found} have the canary's answer, and {expected}"


class AnsweredUsers:
    """The answers of one region's users while a canary is there."""

    def __init__(
        self,
        samples: UserSamples,
        clock: Clock,
        arms: Mapping[ArmName, EngineSet],
        *,
        region: str,
        shares: Mapping[str, float],
        languages: LanguageDetector | None = None,
        scored: ScoredPairs | None = None,
        copied: float | None = None,
    ) -> None:
        """`shares` says by version how many of its requests engines are to keep, 0 to 1.

        `copied` is the share of users' requests whose copies the canary answers; None when it has users of its own.
        Without a judge nothing is `scored`.
        """
        self._samples, self._clock, self.scored = samples, clock, scored
        self._languages = languages
        self._arms, self._region, self._shares = arms, region, shares
        self._copies = None if copied is None else CopiedRequests(copied)
        self._waiting: dict[ArmName, deque[UserSample]] = {arm: deque(maxlen=MOST_WAITING) for arm in ArmName}
        self._pairs: list[PairedAnswer] = []
        self._answers: dict[ArmName, list[PairedReply]] = {arm: [] for arm in ArmName}
        self._numbers = count()
        self._under_way = 0
        self._counts: Counter[str] = Counter()
        self._not_taken = ""
        """Why not all could be taken the last time."""
        self._not_renewed = ""
        """Why engines could not be asked again; they go on for a while."""
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def taking(self) -> AsyncIterator[Self]:
        """Have engines keep samples within the context, and take them; afterwards nothing is kept anywhere."""
        await self._samples.keep(self._region, self._shares)
        try:
            async with meanwhile(self._run()) as self._task:
                yield self
        finally:
            self._waiting, self._copies = {arm: deque() for arm in ArmName}, None
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
                for stable, canary in self._joined() if self._copies else self._as_they_came():
                    # Two empty answers would be worth the same, and show nothing.
                    wanted = self.scored and (stable.answer.strip() or canary.answer.strip())
                    if wanted and self._under_way < MOST_UNDER_WAY:
                        self._under_way += 1
                        group.create_task(self._score(stable, canary))

    def drain(self) -> Batch:
        """What came since the last call; scores wait until the judge has passed its control."""
        assert self._task is not None, "entered before"
        if self._task.done():
            # It only ever ends by a bug, which must not look like users who do not ask.
            self._task.result()
        found = self.scored.drain() if self.scored else {}
        if not self._counts[ArmName.CANARY]:
            found["missing"] = {"judge": "engines have kept no answer of the canary yet"}
        pairs, self._pairs = self._pairs, []
        answers, self._answers = self._answers, {arm: [] for arm in ArmName}
        told = {arm: tuple(each) for arm, each in answers.items() if each}
        return Batch(time=self._clock.now().timestamp(), source="samples", pairs=tuple(pairs), answers=told, **found)

    def blind(self) -> Iterator[Verdict]:
        """Nothing speaks against a canary of which nothing can be taken, and nothing for it."""
        if told := self._not_taken or self._not_renewed or (self._copies and self._copies.lacking):
            yield blind(told)

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
                taken = TakenSamples(problem=str(error), complete=False)
            problems += [taken.problem] if taken.problem else []
            if self._copies and arm is ArmName.CANARY and not taken.complete:
                self._copies.unheard()
            for sample in taken.samples:
                self._counts[arm] += 1
                self._counts["left"] += not sample.whole
                if self._copies:
                    self._copies.add(arm, sample, self._clock.monotonic())
                elif sample.whole:
                    self._waiting[arm].append(sample)
                    self._answers[arm].append(self._read(sample))
        self._not_taken = "; ".join(problems)

    def _joined(self) -> Iterator[Pair]:
        assert self._copies is not None, "only of copies"
        for stable, copy in self._copies.joined(self._clock.monotonic()):
            replies = _reply(stable), _reply(copy) if copy.whole else None
            self._pairs.append(paired_answer(*replies))
            if copy.whole:
                yield stable, copy

    def _as_they_came(self) -> Iterator[Pair]:
        while all(self._waiting.values()):
            yield self._waiting[ArmName.STABLE].popleft(), self._waiting[ArmName.CANARY].popleft()

    def _read(self, sample: UserSample) -> PairedReply:
        detector = self._languages
        language = detector.language(sample.prompt[:LANGUAGE_CHARACTERS]) if detector else ""
        asked = {"prompt_characters": len(sample.prompt), "prompt_language": language}
        return read_reply(_reply(sample)).model_copy(update=asked)

    async def _score(self, stable: UserSample, canary: UserSample) -> None:
        assert self.scored is not None, "nothing is put to no judge"
        number, judge = next(self._numbers), self.scored.judge
        try:
            if self._copies:
                self.scored.add(await judge.judge(stable.pair, stable.prompt, stable.answer, canary.answer))
                return
            first, second = await asyncio.gather(
                judge.judge(f"stable {number}", stable.prompt, stable.answer, right=True),
                judge.judge(f"canary {number}", canary.prompt, canary.answer, right=False),
            )
            self.scored.add(first, second)
        finally:
            self._under_way -= 1


def _reply(sample: UserSample) -> EngineReply:
    ttft, tokens = sample.ttft, sample.tokens
    return EngineReply(
        text=sample.answer,
        finish_reason=sample.finish_reason,
        output_tokens=tokens,
        ttft_seconds=ttft,
        itl_seconds=(sample.seconds - ttft) / (tokens - 1) if ttft is not None and tokens and tokens > 1 else None,
        duration_seconds=sample.seconds,
    )


def _asks_users(context: Context, settings: ShadowStage | CanaryStage | None) -> bool:
    """Whether a gate of the stage is asked of users' own answers."""
    if settings is None:
        return False
    sources = context.spec.sources_in("shadow" if isinstance(settings, ShadowStage) else "canary")
    return any("samples" in sources.get(gate, ()) for gate in settings.gates)


async def require_samples(context: Context) -> None:
    """Before anything is deployed: the champion's engines can keep samples, where a stage needs them.

    Raises:
        Refused: they cannot.
    """
    if not any(_asks_users(context, stage) for stage in (context.spec.shadow, context.spec.canary)):
        return
    samples = context.samples
    assert samples is not None, "backends without samples were refused"
    regions = context.plan.regions
    await asyncio.gather(*(samples.require(region, context.plan.in_production) for region in regions))


@asynccontextmanager
async def answered_users(
    context: Context, step: PlanStep, state: RegionState, settings: ShadowStage | CanaryStage
) -> AsyncIterator[list[AnsweredUsers]]:
    """Take users' answers meanwhile, where a gate asks for them; afterwards engines keep nothing."""
    asked, samples, judges = context.spec.samples, context.samples, context.readers.judges
    if asked is None or not _asks_users(context, settings):
        yield []
        return
    assert samples is not None, "backends without samples were refused"
    stable, canary = both_arms(state)
    copied, part = None, state.weight / 100
    shares = {stable.version: asked.share_of(1 - part), canary.version: asked.share_of(part)}
    if isinstance(settings, ShadowStage):
        copied = settings.percent / 100
        shares = dict.fromkeys(shares, asked.share)
    judged = any(gate in settings.gates for gate in context.spec.gates.of(JudgeGate))
    async with judges() if judges and judged else nullcontext() as judge:
        answers = AnsweredUsers(
            samples,
            context.clock,
            {ArmName.STABLE: stable, ArmName.CANARY: canary},
            region=state.region,
            shares=shares,
            languages=context.readers.languages,
            scored=ScoredPairs(judge) if judge else None,
            copied=copied,
        )
        try:
            async with answers.taking():
                yield [answers]
        finally:
            report = answers.scored.judge.control if answers.scored else None
            said = report.model_dump(mode="json") if report else {}
            told = StepProgress.model_validate({**said, "answers": answers.counts})
            words = f"judge of users' answers: {report.reason}" if report else "users' answers were compared"
            context.journal.tell(step.id, told, words)
