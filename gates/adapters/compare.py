"""Compares two endpoints: asks both the golden set, judges after every pair, ends when no gate can change."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

from pydantic import BaseModel

from gates.adapters.judge import judge_of
from gates.adapters.openai import OpenAIClient
from gates.answers.golden import GoldenPrompt, load_golden
from gates.comparison import AnsweredPair, ComparisonPlan, EndpointComparison
from gates.errors import BadAnswer
from gates.judge.judge import ScoredPairs
from gates.model import ApiForm, ChatAnswer, worst
from gates.reports.check_report import ComparisonReport
from tidegate.core.errors import OutsideError, UsageError
from tidegate.core.files import Unreadable, read_text
from tidegate.core.text import is_loopback, parsed, redacted

RETRIES = 5
"""Of a request that met 429: anyone who lets so few through a minute says nothing of the model."""
TRIES = 3
"""Prompts, one of which an endpoint must answer before anything counts: a wrong name of a model is no bad version."""
Ask = Callable[[GoldenPrompt], Awaitable[ChatAnswer]]
Look = Callable[[EndpointComparison], None]
"""Is shown the comparison after every pair."""


class _Model(BaseModel):
    id: str


class _Models(BaseModel):
    data: list[_Model]


@dataclass(frozen=True)
class Arm:
    """One endpoint, as a person names it."""

    name: str
    """`stable` or `canary`: what its options begin with."""
    url: str
    model: str | None = None
    """None for the only one that it serves."""
    key: str | None = None
    """The variable that holds its API key, or @ and the file that does."""
    api: ApiForm = ApiForm.CHAT

    def read_key(self, environment: Mapping[str, str] = os.environ) -> str:
        """The key itself; empty without one.

        Raises:
            UsageError: there is none where it should be, or it would go out without TLS.
        """
        if not self.key:
            return ""
        option = f"--{self.name}-key"
        if self.key.startswith("@"):
            try:
                key = read_text(Path(self.key[1:]))
            except Unreadable as error:
                raise UsageError(f"{option} {self.key}: {error}", hint="name a file with the key alone") from error
        else:
            key = environment.get(self.key, "")
        if not key.strip() or len(key.split()) != 1 or not key.isascii():
            # Neither its name nor its text: who mistook the option for the key's own place must not find it in a log.
            raise UsageError(
                f"{option}: no key is there", hint="name a variable, or @FILE, with one word such as sk-..."
            )
        refuse_open_key(base_url(self.url, f"--{self.name}"), option)
        return key.strip()

    @asynccontextmanager
    async def opened(self, timeout: timedelta, tell: Callable[[str], None]) -> AsyncIterator[Ask]:
        """What asks it, of one endpoint; silence may last `timeout`.

        Raises:
            UsageError: the address is none, or the endpoint serves several models.
            OutsideError: it does not answer.
        """
        url, key, model = base_url(self.url, f"--{self.name}"), self.read_key(), self.model
        async with OpenAIClient(url, key=key, timeout_seconds=timeout.total_seconds(), direct=False) as client:
            if model is None:
                try:
                    served = [each.id for each in (await client.ask("/models", _Models)).data]
                except OutsideError as error:
                    hint = f"name the model with --{self.name}-model; see the address and the key"
                    raise OutsideError(error.message, hint=hint) from error
                if len(served) != 1:
                    known = ", ".join(served[:10]) or "none"
                    hint = f"name one: --{self.name}-model"
                    raise UsageError(f"{url} serves {len(served)} models: {known}", hint=hint)
                (model,) = served
            tell(f"{self.name} is {model} at {url}")
            yield partial(ask, client, model, self.api)


async def ask(client: OpenAIClient, model: str, api: ApiForm, entry: GoldenPrompt) -> ChatAnswer:
    """The answer to one prompt.

    Raises:
        BadAnswer, OutsideError: as `OpenAIClient.stream_answer`.
    """
    chat = api is ApiForm.CHAT
    body = {
        "model": model,
        **({"messages": [{"role": "user", "content": entry.prompt}]} if chat else {"prompt": entry.prompt}),
        "max_tokens": entry.max_tokens,
        # So that two answers of one version can be compared.
        "temperature": 0,
        "seed": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return await client.stream_answer("/chat/completions" if chat else "/completions", body, retries=RETRIES)


def base_url(text: str, option: str) -> str:
    """The address that an option names, with `/v1` where it has no path.

    Raises:
        UsageError: it is none, or holds a name and password or a query.
    """
    parts = parsed(text)
    well_formed = parts and parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    if not (parts and well_formed) or parts.query or parts.fragment or "@" in parts.netloc:
        expected = "an address such as http://localhost:8000, without a name, password or query"
        found = repr(redacted(text)) if "://" in text else "no address"
        raise UsageError(f"{option}: found {found}; expected {expected}", hint="a key has an option of its own")
    path = parts.path.rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path or '/v1'}"


def refuse_open_key(url: str, option: str) -> None:
    """Raises UsageError when a key would go over the network as it is."""
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise UsageError(f"{option}: the key would go to {url} without TLS", hint="give an https:// address")


def compare(
    plan: ComparisonPlan,
    golden: Path,
    arms: tuple[Arm, Arm],
    *,
    concurrency: int,
    within: timedelta,
    timeout: timedelta,
    tell: Callable[[str], None],
    look: Look,
) -> ComparisonReport:
    """Compare both endpoints, as far as needed for a verdict or as time allows.

    Args:
        plan: the gates.
        golden: the file of the golden set.
        arms: stable and canary.
        concurrency: pairs under way at once.
        within: time until a verdict.
        timeout: how long an endpoint may stay silent.
        tell: gets lines for the person who waits.
        look: is shown the comparison after every pair.

    Raises:
        UsageError: an argument is wrong, or the golden set is too small.
        SpecError: the golden set is wrong.
        OutsideError: an endpoint was not reached.
    """
    prompts = load_golden(golden, plan.quality.scorer)
    comparison = EndpointComparison(plan, prompts)
    if len(prompts) < plan.quality.min_prompts:
        raise UsageError(
            f"{golden}: found {len(prompts)} prompts; gate quality needs {plan.quality.min_prompts} (min_prompts)",
            hint=f"add {plan.quality.min_prompts - len(prompts)}, or lower min_prompts in --gates",
        )

    async def run() -> None:
        async with AsyncExitStack() as stack:
            scores = ScoredPairs(await stack.enter_async_context(judge_of(plan.judge))) if plan.judge else None
            asked = [await stack.enter_async_context(arm.opened(timeout, tell)) for arm in arms]
            await asyncio.gather(*(warm_up(arm, prompts) for arm in asked))
            with suppress(TimeoutError):
                async with (
                    asyncio.timeout(within.total_seconds()),
                    aclosing(answered_pairs(asked, prompts, scores, concurrency=concurrency, tell=tell)) as pairs,
                ):
                    async for pair in pairs:
                        comparison.take(pair)
                        comparison.take_scores(scores.drain() if scores else {})
                        look(comparison)
                        if comparison.decided:
                            break

    asyncio.run(run())
    verdicts, times = comparison.verdicts(deadline_passed=True), comparison.times
    return ComparisonReport(
        name=plan.name,
        outcome=worst(verdict.outcome for verdict in verdicts),
        batches=len(times),
        since=min(times, default=None),
        until=max(times, default=None),
        verdicts=verdicts,
        not_asked=plan.not_asked,
        differing=comparison.differing,
    )


async def warm_up(arm: Ask, golden: Sequence[GoldenPrompt]) -> None:
    """Ask it something, for nothing: first requests meet cold caches, and tell whether anybody is there.

    Raises:
        OutsideError: it was not reached, or answers none of a few prompts.
    """
    *others, last = golden[:TRIES]
    for entry in others:
        with suppress(BadAnswer):
            await arm(entry)
            return
    await arm(last)


async def answered_pairs(
    arms: Sequence[Ask],
    golden: Sequence[GoldenPrompt],
    scores: ScoredPairs | None,
    *,
    concurrency: int,
    tell: Callable[[str], None],
) -> AsyncGenerator[AnsweredPair]:
    """Pairs as they come, without an end; a judge has scored those of the first round that it wants.

    The set is asked in a random order, the same each time; after the last prompt it begins again, and times are
    measured again. Which endpoint is asked first of a pair is drawn too: the one that comes second might find the
    machine busy with the other.

    Raises:
        OutsideError: an endpoint was not reached. Of a version that nobody can ask, that says nothing.
    """
    silent = set[str]()

    async def answer(arm: int, entry: GoldenPrompt) -> ChatAnswer | None:
        try:
            return await arms[arm](entry)
        except BadAnswer as error:
            if (name := ("stable", "canary")[arm]) not in silent:
                silent.add(name)
                tell(f"{name}: {error.message} (said once)")
            return None

    async def pair(entry: GoldenPrompt, order: tuple[int, int], number: int) -> AnsweredPair:
        found = await asyncio.gather(*(answer(arm, entry) for arm in order))
        stable, canary = (found[order.index(arm)] for arm in (0, 1))
        answered = AnsweredPair(time=time.time(), prompt=entry.prompt, stable=stable, canary=canary)
        # The same words a second time are no second opinion.
        if scores and stable and canary and number == 0:
            await scores.ask(entry.prompt, entry.prompt, stable.text, canary.text)
        return answered

    to_ask = _order(golden)
    under_way: set[asyncio.Task[AnsweredPair]] = set()
    try:
        while True:
            while len(under_way) < concurrency:
                under_way.add(asyncio.create_task(pair(*next(to_ask))))
            over, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            for task in over:
                yield task.result()
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


def _order(golden: Sequence[GoldenPrompt]) -> Iterator[tuple[GoldenPrompt, tuple[int, int], int]]:
    """Prompts, each with the arms as they are asked and the number of its round."""
    for number in count():
        random = Random(number)
        for entry in random.sample(golden, len(golden)):
            yield entry, (1, 0) if random.random() < 0.5 else (0, 1), number
