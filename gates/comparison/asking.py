"""Asks both endpoints every prompt of a golden set at the same moment, round after round."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from random import Random

from gates.answers.golden import GoldenPrompt
from gates.comparison.model import LEAST_STEP, AnsweredPair
from gates.errors import BadAnswer
from gates.model import EngineReply
from gates.ports import CompletionSource

TRIES = 3
"""Prompts, one of which an endpoint must answer before anything counts: a wrong name of a model is no bad version."""


class PairedPrompts:
    """A golden set that is asked in a random order, the same each time; after the last prompt it begins again.

    Times are measured again in each round. Which endpoint is asked first of a pair is drawn too: the one that comes
    second might find the machine busy with the other.
    """

    def __init__(
        self,
        stable: CompletionSource,
        canary: CompletionSource,
        golden: Sequence[GoldenPrompt],
        *,
        concurrency: int,
        now: Callable[[], float],
    ) -> None:
        """`concurrency` is how many pairs are under way at once; `now` gives Unix time in seconds."""
        self._arms = (stable, canary)
        self._golden, self._concurrency, self._now = golden, concurrency, now
        self._last = 0.0

    async def warm_up(self) -> None:
        """Ask each something, for nothing: first requests meet cold caches, and tell whether anybody is there.

        Raises:
            OutsideError: one was not reached, or answers none of a few prompts.
        """
        await asyncio.gather(*(self._any_answer(arm) for arm in self._arms))

    async def _any_answer(self, arm: CompletionSource) -> None:
        *others, last = self._golden[:TRIES]
        for entry in others:
            with suppress(BadAnswer):
                await arm.ask(entry.prompt, max_tokens=entry.max_tokens)
                return
        await arm.ask(last.prompt, max_tokens=last.max_tokens)

    async def pairs(self, answered: Iterable[AnsweredPair] = ()) -> AsyncGenerator[AnsweredPair]:
        """Pairs as they come, without an end; those in `answered` are not asked again.

        Raises:
            OutsideError: an endpoint was not reached. Of a version that nobody can ask, that says nothing.
        """
        answered = list(answered)
        self._last = max((pair.time for pair in answered), default=0.0)
        to_ask = self._order(Counter(pair.prompt for pair in answered))
        under_way: set[asyncio.Task[AnsweredPair]] = set()
        try:
            while True:
                while len(under_way) < self._concurrency:
                    under_way.add(asyncio.create_task(self._pair(*next(to_ask))))
                over, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                for task in over:
                    yield self._timed(task.result())
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    def _order(self, answered: Counter[str]) -> Iterator[tuple[GoldenPrompt, bool]]:
        """Prompts, each with whether the canary is asked first."""
        for number in count():
            random = Random(number)
            for entry in random.sample(self._golden, len(self._golden)):
                canary_first = random.random() < 0.5
                if answered[entry.prompt] <= number:
                    yield entry, canary_first

    async def _pair(self, entry: GoldenPrompt, canary_first: bool) -> AnsweredPair:
        order = (1, 0) if canary_first else (0, 1)
        found = await asyncio.gather(*(_answer(self._arms[arm], entry) for arm in order))
        (stable, stable_error), (canary, canary_error) = (found[order.index(arm)] for arm in (0, 1))
        return AnsweredPair(
            time=self._now(),
            prompt=entry.prompt,
            stable=stable,
            canary=canary,
            stable_error=stable_error,
            canary_error=canary_error,
        )

    def _timed(self, pair: AnsweredPair) -> AnsweredPair:
        self._last = max(pair.time, self._last + LEAST_STEP)
        return pair.model_copy(update={"time": self._last})


async def _answer(arm: CompletionSource, entry: GoldenPrompt) -> tuple[EngineReply | None, str]:
    try:
        return await arm.ask(entry.prompt, max_tokens=entry.max_tokens), ""
    except BadAnswer as error:
        return None, error.message
