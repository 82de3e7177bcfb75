"""shadow: the canary meets copies of users' requests and paired probes; no user meets the canary."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count, cycle
from typing import TypeGuard

from gates.analyses.agreement import Likeness
from gates.analyses.burn_rate import BurnRateGate
from gates.answers.likeness import paired_answer
from gates.errors import BadAnswer
from gates.evidence.batch import ArmName as Side
from gates.evidence.batch import Batch, Dimension, PairedAnswer, PodEvidence
from gates.judge.control import ControlReport
from gates.judge.pair_judge import JudgedPair, PairJudge
from gates.model import EngineReply, GateOutcome, Verdict
from gates.ports import Embedder, LanguageDetector
from gates.spec import stage_sources
from pipelines.events.payloads import StepProgress
from pipelines.model import PlanStep
from pipelines.plan.gates import gates_in
from pipelines.ports import Chat, ChatAnswer
from pipelines.run.context import Context
from pipelines.run.evidence import WatchWindow, evidence_streams, look, terms_for, watch
from pipelines.run.regions import both_arms
from pipelines.spec.delivery import ShadowStage
from pipelines.spec.policy import user_prompts
from rollouts.model import EngineSet, RegionState
from tidegate.core.clock import Clock
from tidegate.core.errors import OutsideError


class PairedProbes:
    """A paired probe of one region: both arms get every prompt at the same moment."""

    def __init__(
        self,
        chat: Chat,
        clock: Clock,
        arms: tuple[EngineSet, EngineSet],
        *,
        model: str,
        prompts: Sequence[str],
        max_tokens: int,
        judge: PairJudge | None = None,
        languages: LanguageDetector | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        """`arms` are stable and canary; `prompts` are asked in turn, again from the start when all were.

        Without an embedder likeness is that of words, without a detector no language is known, without a
        judge nothing is scored.
        """
        self._chat, self._clock = chat, clock
        self._urls = tuple(arm.url for arm in arms)
        self._model, self._max_tokens = model, max_tokens
        self._prompts: Iterator[str] = cycle(prompts)
        self._numbers = count()
        self._judge, self._languages, self._embedder = judge, languages, embedder
        self._pairs: list[PairedAnswer] = []
        self._scores: list[JudgedPair] = []
        self.not_reached: OutsideError | None = None
        """Why the last pair says nothing: an engine could not be asked."""

    async def run(self, *, per_second: float) -> None:
        """Send pairs until cancelled; a slow answer delays no other pair."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._pair(str(next(self._numbers)), next(self._prompts)))
                await self._clock.sleep(1 / per_second)

    def drain(self) -> Batch:
        """What came since the last call.

        A judge's scores come as those of two pods, one to one: they arrive long after the pair's times. They
        wait until the judge has passed its control, because an untrusted judge must not become evidence.
        """
        pairs, self._pairs = self._pairs, []
        trusted = self._judge is not None and self._judge.control.ok is True
        scores, self._scores = (self._scores, []) if trusted else ([], self._scores)
        arms = (
            PodEvidence(arm=Side.STABLE, scores=tuple(score.stable for score in scores)),
            PodEvidence(arm=Side.CANARY, scores=tuple(score.canary for score in scores)),
        )
        missing = {"judge": self._judge.control.reason} if self._judge and not trusted else {}
        now = self._clock.now().timestamp()
        return Batch(
            time=now,
            source="probe",
            arms=arms if scores else (),
            pairs=tuple(pairs),
            dimensions=_dimensions(scores) if scores else {},
            missing=missing,
        )

    @property
    def control(self) -> ControlReport | None:
        """Whether the judge may be believed; None without a judge."""
        return self._judge.control if self._judge else None

    async def _pair(self, key: str, prompt: str) -> None:
        asked = [self._chat.ask(url, self._model, prompt, max_tokens=self._max_tokens) for url in self._urls]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for answer in answers:
            # An engine that answers badly is evidence; a bug must not look like one.
            if isinstance(answer, BaseException) and not isinstance(answer, OutsideError):
                raise answer
        self.not_reached = next((answer for answer in answers if _outside(answer)), None)
        if self.not_reached:
            return
        stable, canary = (_reply(answer) if isinstance(answer, ChatAnswer) else None for answer in answers)
        # Once both are over: a pair under way is neither arrived nor lost.
        self._pairs.append(paired_answer(stable, canary, languages=self._languages, embedder=self._embedder))
        if self._judge and stable and canary and self._judge.wants(key):
            scored = await self._judge.judge(key, prompt, stable.text, canary.text)
            self._scores += [scored] if isinstance(scored, JudgedPair) else []


def _dimensions(scores: Sequence[JudgedPair]) -> Mapping[Side, Mapping[Dimension, tuple[float, ...]]]:
    """By arm, what each dimension got; every pair has the same dimensions."""
    asked = scores[0].stable_dimensions
    return {
        Side.STABLE: {each: tuple(score.stable_dimensions[each] for score in scores) for each in asked},
        Side.CANARY: {each: tuple(score.canary_dimensions[each] for score in scores) for each in asked},
    }


def _outside(answer: object) -> TypeGuard[OutsideError]:
    """Whether nothing was said at all: of an engine that nobody reached, a pair tells nothing."""
    return isinstance(answer, OutsideError) and not isinstance(answer, BadAnswer)


def _reply(answer: ChatAnswer) -> EngineReply:
    tokens = len(answer.tokens)
    after_first = answer.duration_seconds - answer.ttft_seconds
    return EngineReply(
        text=answer.text,
        finish_reason=answer.finish_reason,
        output_tokens=tokens,
        ttft_seconds=answer.ttft_seconds,
        itl_seconds=after_first / (tokens - 1) if tokens > 1 else None,
        duration_seconds=answer.duration_seconds,
    )


PAIR_MAX_TOKENS = 32
"""The longest answer of a pair when the spec says nothing of users."""


async def shadow(context: Context, step: PlanStep) -> None:
    """Mirror user traffic, send paired prompts next to it, watch, stop mirroring."""
    settings, fleet = context.spec.shadow, context.fleet(step)
    assert settings is not None, f"{step.id} without a shadow stage"
    name = f"shadow@{step.region}"
    gates = gates_in(context.spec, settings)
    terms = terms_for(
        context, name, settings.gates, stage_sources("shadow"), gates=gates, mirrored=settings.percent / 100
    )
    trial = context.trials.open(name, terms, step.id)
    state = await fleet.mirror(settings.percent)
    context.journal.traffic(step, state)
    pairing = await _pairing(context, state, settings.gates)
    feeds = evidence_streams(
        context, context.arms(step, canary_role="shadow"), users=False, burn=terms.of(BurnRateGate)
    )
    drained = context.clock.now()

    async def ask(final: bool) -> Sequence[Verdict]:
        nonlocal drained
        if sender.done():
            # It only ever ends by a bug, which must not look like a canary that does not answer.
            sender.result()
        now = context.clock.now()
        if final or now - drained >= context.spec.look:
            trial.take(pairing.drain())
            drained = now
        verdicts = await look(trial, feeds, now, final=final)
        return [*verdicts, *_blind(pairing)]

    window = WatchWindow(settings.at_least.total_seconds(), settings.within.total_seconds())
    try:
        async with _sending(pairing, settings) as sender:
            await watch(context, step, window, ask)
    finally:
        context.trials.keep(name)
        if control := pairing.control:
            found = StepProgress.model_validate(control.model_dump(mode="json"))
            context.journal.tell(step.id, found, f"judge: {control.reason}")
    context.journal.traffic(step, await fleet.mirror(0))


def _blind(pairing: PairedProbes) -> Iterator[Verdict]:
    """Nothing speaks against a canary that cannot be asked, and nothing for it."""
    if pairing.not_reached:
        yield Verdict(gate="evidence", outcome=GateOutcome.ERROR, reason=str(pairing.not_reached))


async def _pairing(context: Context, state: RegionState, asked: Sequence[str]) -> PairedProbes:
    readers, agreement = context.readers, context.spec.gates.agreement
    return PairedProbes(
        context.chat,
        context.clock,
        both_arms(state),
        model=context.plan.name,
        prompts=user_prompts(context.spec, context.folder),
        max_tokens=context.spec.traffic.max_tokens if context.spec.traffic else PAIR_MAX_TOKENS,
        judge=await readers.judges() if readers.judges and "judge" in asked else None,
        languages=readers.languages,
        embedder=readers.embedder if agreement and agreement.likeness is Likeness.MEANING else None,
    )


@asynccontextmanager
async def _sending(pairing: PairedProbes, settings: ShadowStage) -> AsyncIterator[asyncio.Task[None]]:
    """Send pairs meanwhile."""
    sender = asyncio.create_task(pairing.run(per_second=settings.pairs_per_second))
    try:
        yield sender
    finally:
        sender.cancel()
        await asyncio.wait([sender])
