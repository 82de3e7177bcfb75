"""Sends the same prompts to both arms at a steady pace and hands on what the pairs of answers say."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, cycle
from typing import TypeGuard

from gates.answers.likeness import paired_answer
from gates.errors import BadAnswer
from gates.evidence import Arm as Side
from gates.evidence import Batch, PairedAnswer, PodEvidence
from gates.judge.control import ControlReport
from gates.judge.judging import JudgedPair
from gates.judge.pair_judge import PairJudge
from gates.judge.spec import Dimension
from gates.model import Reply
from gates.ports import Embedder, LanguageDetector
from pipelines.ports import Answer, Chat
from rollouts.model import Arm
from tidegate.core.clock import Clock
from tidegate.core.errors import OutsideError


class Pairing:
    """A paired probe of one region: both arms get every prompt at the same moment."""

    def __init__(
        self,
        chat: Chat,
        clock: Clock,
        arms: tuple[Arm, Arm],
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
        stable, canary = (_reply(answer) if isinstance(answer, Answer) else None for answer in answers)
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


def _reply(answer: Answer) -> Reply:
    tokens = len(answer.tokens)
    after_first = answer.duration_seconds - answer.ttft_seconds
    return Reply(
        text=answer.text,
        finish_reason=answer.finish_reason,
        output_tokens=tokens,
        ttft_seconds=answer.ttft_seconds,
        itl_seconds=after_first / (tokens - 1) if tokens > 1 else None,
        duration_seconds=answer.duration_seconds,
    )
