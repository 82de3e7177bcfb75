"""shadow: the canary meets copies of users' requests and paired probes; no user meets the canary.

Where engines keep samples, what users were answered is compared with what the canary would have answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count, cycle
from typing import TypeGuard

from gates.answers.likeness import paired_answer
from gates.errors import BadAnswer
from gates.evidence.batch import Batch, PairedAnswer
from gates.judge.control import ControlReport
from gates.judge.judge import Judge, ScoredPairs
from gates.judge.spec import JudgeGate
from gates.model import Verdict, blind
from gates.sequential_test import AnalysisPlan
from pipelines.events.payloads import StepProgress
from pipelines.model import PlanStep
from pipelines.plan.gates import terms_of
from pipelines.ports import Chat
from pipelines.run.context import Context
from pipelines.run.evidence import (
    Gatherer,
    evidence_streams,
    watch_trial,
)
from pipelines.run.regions import both_arms
from pipelines.run.user_answers import answered_users
from pipelines.spec.policy import user_prompts
from rollouts.model import EngineSet, RegionState
from tidegate.core.clock import Clock
from tidegate.core.errors import OutsideError
from tidegate.core.process import meanwhile


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
        judge: Judge | None = None,
    ) -> None:
        """`arms` are stable and canary; `prompts` are asked in turn, again from the start when all were.

        Without a judge nothing is scored.
        """
        self._chat, self._clock = chat, clock
        self._urls = tuple(arm.url for arm in arms)
        self._model, self._max_tokens = model, max_tokens
        self._prompts: Iterator[str] = cycle(prompts)
        self._numbers = count()
        self._scored = ScoredPairs(judge) if judge else None
        self._pairs: list[PairedAnswer] = []
        self._sender: asyncio.Task[None] | None = None
        self._not_reached: OutsideError | None = None
        """Why the last pair says nothing: an engine could not be asked."""

    @asynccontextmanager
    async def sending(self, *, per_second: float) -> AsyncIterator[None]:
        """Send pairs within the context."""
        async with meanwhile(self._run(per_second)) as self._sender:
            yield
        self._sender = None

    async def _run(self, per_second: float) -> None:
        """Until cancelled; a slow answer delays no other pair."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._pair(str(next(self._numbers)), next(self._prompts)))
                await self._clock.sleep(1 / per_second)

    def drain(self) -> Batch:
        """What came since the last call."""
        pairs, self._pairs = self._pairs, []
        scored = self._scored.drain() if self._scored else {}
        return Batch(time=self._clock.now().timestamp(), source="probe", pairs=tuple(pairs), **scored)

    def blind(self) -> Iterator[Verdict]:
        """Of an engine that nobody reached, a pair tells nothing."""
        if self._sender and self._sender.done():
            # It only ever ends by a bug, which must not look like a canary that does not answer.
            self._sender.result()
        if self._not_reached:
            yield blind(str(self._not_reached))

    @property
    def control(self) -> ControlReport | None:
        """Whether the judge may be believed; None without a judge."""
        return self._scored.judge.control if self._scored else None

    async def _pair(self, key: str, prompt: str) -> None:
        asked = [self._chat.ask(url, self._model, prompt, max_tokens=self._max_tokens) for url in self._urls]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for answer in answers:
            # An engine that answers badly is evidence; a bug must not look like one.
            if isinstance(answer, BaseException) and not isinstance(answer, OutsideError):
                raise answer
        self._not_reached = next((answer for answer in answers if _outside(answer)), None)
        if self._not_reached:
            return
        stable, canary = (answer[0] if isinstance(answer, tuple) else None for answer in answers)
        # Once both are over: a pair under way is neither arrived nor lost.
        self._pairs.append(paired_answer(stable, canary))
        if self._scored and stable and canary:
            await self._scored.ask(key, prompt, stable.text, canary.text)


def _outside(answer: object) -> TypeGuard[OutsideError]:
    """Whether nothing was said at all: of an engine that nobody reached, a pair tells nothing."""
    return isinstance(answer, OutsideError) and not isinstance(answer, BadAnswer)


PAIR_MAX_TOKENS = 32
"""The longest answer of a pair when the spec says nothing of users."""


async def shadow(context: Context, step: PlanStep) -> None:
    """Mirror user traffic, send paired prompts next to it, watch, stop mirroring."""
    settings, fleet = context.spec.shadow, context.fleet(step)
    assert settings is not None, f"{step.id} without a shadow stage"
    name = f"shadow@{step.region}"
    terms = terms_of(context.spec, settings, step.region or "")
    trial = context.trials.open(name, terms, step.id)
    state = await fleet.mirror(settings.percent)
    context.journal.traffic(step, state)
    feeds = evidence_streams(context, context.arms(step, canary_role="shadow"), users=False, terms=terms)

    def keep(probes: PairedProbes | None) -> None:
        context.trials.keep(name)
        if probes and (control := probes.control):
            found = StepProgress.model_validate(control.model_dump(mode="json"))
            context.journal.tell(step.id, found, f"judge: {control.reason}")

    async with AsyncExitStack() as stack:
        probes = await _probes(context, state, terms, stack)
        stack.callback(keep, probes)
        answers = await stack.enter_async_context(answered_users(context, step, state, settings))
        gatherers: list[Gatherer] = [*answers]
        if probes:
            await stack.enter_async_context(probes.sending(per_second=settings.pairs_per_second))
            gatherers.append(probes)
        await watch_trial(context, step, trial, feeds, settings, gatherers=gatherers)
    context.journal.traffic(step, await fleet.mirror(0))


async def _probes(
    context: Context, state: RegionState, terms: AnalysisPlan, stack: AsyncExitStack
) -> PairedProbes | None:
    """None where no gate is asked of them; `stack` closes their judge."""
    probed = {gate for gate in terms.gates if "probe" in terms.sources_of(gate)}
    if not probed:
        return None
    readers = context.readers
    judged = probed & context.spec.gates.of(JudgeGate).keys()
    return PairedProbes(
        context.chat,
        context.clock,
        both_arms(state),
        model=context.plan.name,
        prompts=user_prompts(context.spec, context.folder),
        max_tokens=context.spec.traffic.max_tokens if context.spec.traffic else PAIR_MAX_TOKENS,
        judge=await stack.enter_async_context(readers.judges()) if readers.judges and judged else None,
    )
