"""Sends the same prompts to both arms at a steady pace and keeps the pairs of answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import cycle

from gates.distribution import Distribution, Latencies
from gates.model import Pair, Pairs, Reply
from gates.spec import LatencyMetric
from pipelines.ports import Answer, Chat
from rollouts.model import Arm
from tidegate.core.clock import Clock
from tidegate.core.errors import OutsideError


class Pairing:
    """A paired probe of one region: both arms get every prompt at the same moment."""

    def __init__(
        self, chat: Chat, clock: Clock, arms: tuple[Arm, Arm], *, model: str, prompts: Sequence[str], max_tokens: int
    ) -> None:
        """`arms` are stable and canary; `prompts` are asked in turn, again from the start when all were."""
        self._chat = chat
        self._clock = clock
        self._urls = tuple(arm.url for arm in arms)
        self._model = model
        self._prompts: Iterator[str] = cycle(prompts)
        self._max_tokens = max_tokens
        self._answers: list[tuple[Answer, Answer]] = []
        self._sent = 0

    async def run(self, *, per_second: float) -> None:
        """Send pairs until cancelled; a slow answer delays no other pair."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._pair(next(self._prompts)))
                await self._clock.sleep(1 / per_second)

    async def _pair(self, prompt: str) -> None:
        asked = [self._chat.ask(url, self._model, prompt, max_tokens=self._max_tokens) for url in self._urls]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        # Once both are over: a pair under way is neither arrived nor lost.
        self._sent += 1
        for answer in answers:
            # An engine that does not answer is evidence; anything else is a bug and must not look like one.
            if isinstance(answer, BaseException) and not isinstance(answer, OutsideError):
                raise answer
        stable, canary = answers
        if isinstance(stable, Answer) and isinstance(canary, Answer):
            self._answers.append((stable, canary))

    @property
    def pairs(self) -> Pairs:
        """All pairs so far; one that did not arrive was sent all the same."""
        answered = tuple(Pair(stable=_reply(stable), canary=_reply(canary)) for stable, canary in self._answers)
        return Pairs(sent=self._sent, answered=answered)

    def latencies(self, metric: LatencyMetric) -> Latencies:
        """The times of both arms over the pairs so far; a pair with one answer has no times."""
        stable, canary = zip(*self._answers, strict=True) if self._answers else ((), ())
        return Latencies(stable=_distribution(stable, metric), canary=_distribution(canary, metric))


def _reply(answer: Answer) -> Reply:
    return Reply(
        text=answer.text,
        finish_reason=answer.finish_reason,
        output_tokens=len(answer.tokens),
        ttft_seconds=answer.ttft_seconds,
    )


def _distribution(answers: Sequence[Answer], metric: LatencyMetric) -> Distribution:
    return Distribution.from_samples(_seconds(answer, metric) for answer in answers)


def _seconds(answer: Answer, metric: LatencyMetric) -> float:
    """As the load measures it, so that one margin fits both."""
    if metric is LatencyMetric.TTFT:
        return answer.ttft_seconds
    if metric is LatencyMetric.E2E:
        return answer.duration_seconds
    return (answer.duration_seconds - answer.ttft_seconds) / max(1, len(answer.tokens) - 1)
