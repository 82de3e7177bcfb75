"""Compares two endpoints: asks both the golden set, judges after every pair, ends when no gate can change."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from gates.adapters.openai_endpoint import OpenAIEndpoint, base_url, models_of, refuse_open_key
from gates.adapters.readers import embedder, judge_of, languages
from gates.analyses.agreement import AgreementGate, Likeness
from gates.answers.golden import GoldenPrompt, load_golden, scorers_of
from gates.comparison.answers_file import AnswersFile
from gates.comparison.asking import PairedPrompts
from gates.comparison.comparison import EndpointComparison
from gates.comparison.model import AnsweredPair, ApiForm, Endpoint
from gates.comparison.plan import ComparisonPlan
from gates.judge.judge import ScoredPairs
from gates.model import GateOutcome, Scorer, worst
from gates.reports.check_report import ComparisonReport, as_lines
from tidegate.core.errors import UsageError
from tidegate.core.files import Unreadable, read_text
from tidegate.core.spec import Problem, SpecError


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
    async def opened(self, timeout: timedelta) -> AsyncIterator[tuple[Endpoint, OpenAIEndpoint]]:
        """Where the arm is asked, and what asks it; silence may last `timeout`.

        Raises:
            UsageError: the address is none, or the endpoint serves several models.
            OutsideError: it does not answer.
        """
        url, key, model = base_url(self.url, f"--{self.name}"), self.read_key(), self.model
        if model is None:
            served = await models_of(url, key)
            if len(served) != 1:
                known = ", ".join(served[:10]) or "none"
                raise UsageError(f"{url} serves {len(served)} models: {known}", hint=f"name one: --{self.name}-model")
            (model,) = served
        at = Endpoint(url=url, model=model, api=self.api)
        async with OpenAIEndpoint(at, key=key, timeout_seconds=timeout.total_seconds()) as client:
            yield at, client


Look = Callable[[EndpointComparison], None]
"""Is shown the comparison after every pair."""


def compare(
    plan: ComparisonPlan,
    golden: Path,
    arms: tuple[Arm, Arm] | None,
    answers: Path | None,
    *,
    folder: Path,
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
        arms: stable and canary; None to judge answers that the file has.
        answers: the file in which answers are kept, and whose answers are judged first.
        folder: where the file of labels is that a judge's plan names.
        concurrency: pairs under way at once.
        within: time until a verdict.
        timeout: how long an endpoint may stay silent.
        tell: gets lines for the person who waits.
        look: is shown the comparison after every pair.

    Raises:
        UsageError: an argument is wrong, or there is nothing to judge.
        SpecError: the golden set or the file of answers is wrong.
        OutsideError: an endpoint was not reached.
    """
    prompts = load_golden(golden, plan.quality.scorer)
    comparison = _comparison_of(plan, prompts)
    if len(prompts) < plan.quality.min_prompts:
        raise UsageError(
            f"{golden}: found {len(prompts)} prompts; gate quality needs {plan.quality.min_prompts} (min_prompts)",
            hint=f"add {plan.quality.min_prompts - len(prompts)}, or lower min_prompts in --gates",
        )
    with AnswersFile(answers) if answers else nullcontext() as kept:
        if kept is not None:
            _refuse_other_set(kept, prompts, golden, answers)
        if arms is None and not (kept and kept.pairs):
            raise UsageError("no endpoint is given, and no answers are kept", hint="give --stable URL and --canary URL")

        async def run() -> None:
            scores = ScoredPairs(await judge_of(plan.judge, folder, paired=True)) if plan.judge else None
            work = _Work(comparison, prompts, kept, scores, look)
            async with work.judging():
                if kept and kept.pairs:
                    tell(f"{answers}: {len(kept.pairs):,} pairs of answers are there already")
                    await work.take_kept()
                if arms is not None and not comparison.decided:
                    await work.ask(arms, tell, concurrency=concurrency, within=within, timeout=timeout)

        asyncio.run(run())
    verdicts, times = comparison.verdicts(deadline_passed=True), comparison.times
    return ComparisonReport(
        name=plan.name,
        outcome=worst(verdict.outcome for verdict in verdicts),
        batches=len(times),
        since=min(times, default=None),
        until=max(times, default=None),
        verdicts=as_lines(verdicts),
        not_asked=plan.not_asked,
        likeness=comparison.likeness,
        unanswered=comparison.unanswered,
        differing=comparison.differing,
    )


def _comparison_of(plan: ComparisonPlan, golden: Sequence[GoldenPrompt]) -> EndpointComparison:
    """With the readers that its gates and scorers need.

    Raises:
        UsageError: a prompt is scored by log-likelihood, which only a version's own engine tells.
    """
    scorers = scorers_of(golden, plan.quality.scorer)
    if Scorer.LOG_LIKELIHOOD in scorers:
        raise UsageError(
            f"the scorer {Scorer.LOG_LIKELIHOOD} asks vLLM itself, in the offline stage of a delivery",
            hint=f"use {Scorer.F1} or {Scorer.SEMANTIC} here",
        )
    agreements = [each for each in plan.pairs.settings.values() if isinstance(each, AgreementGate)]
    by_meaning = any(each.likeness is Likeness.MEANING for each in agreements)
    by_language = any(each.min_same_language is not None for each in agreements)
    return EndpointComparison(
        plan,
        golden,
        embedder=embedder() if Scorer.SEMANTIC in scorers else None,
        likeness=embedder() if by_meaning else None,
        languages=languages() if by_language else None,
    )


def _refuse_other_set(kept: AnswersFile, golden: Sequence[GoldenPrompt], file: Path, answers: Path | None) -> None:
    prompts = {entry.prompt for entry in golden}
    for number, pair in enumerate(kept.pairs, start=2):
        if pair.prompt not in prompts:
            expected = f"prompts of {file}; name another file for another golden set"
            raise SpecError([Problem(str(answers), number, "prompt", "a prompt of another set", expected)])


class _Work:
    """One comparison: first the answers that are there, then new ones."""

    def __init__(
        self,
        comparison: EndpointComparison,
        golden: Sequence[GoldenPrompt],
        kept: AnswersFile | None,
        scores: ScoredPairs | None,
        look: Look,
    ) -> None:
        self._comparison, self._golden, self._kept, self._scores, self._look = comparison, golden, kept, scores, look
        self._judging: dict[str, asyncio.Task[None]] = {}

    @asynccontextmanager
    async def judging(self) -> AsyncIterator[None]:
        """At the end of the context the judge is no longer asked."""
        try:
            yield
        finally:
            for task in self._judging.values():
                task.cancel()
            await asyncio.gather(*self._judging.values(), return_exceptions=True)

    async def take_kept(self) -> None:
        """Learn from the answers that are there."""
        for pair in self._kept.pairs if self._kept else ():
            self._take(pair)
        await self._judged()

    async def ask(
        self,
        arms: tuple[Arm, Arm],
        tell: Callable[[str], None],
        *,
        concurrency: int,
        within: timedelta,
        timeout: timedelta,
    ) -> None:
        """Ask both, until there is a verdict or the time is over."""
        async with AsyncExitStack() as stack:
            (stable, of_stable), (canary, of_canary) = [
                await stack.enter_async_context(arm.opened(timeout)) for arm in arms
            ]
            if self._kept is not None:
                self._kept.begin(stable, canary)
            asked = PairedPrompts(of_stable, of_canary, self._golden, concurrency=concurrency, now=time.time)
            tell(f"stable is {stable}, canary is {canary}")
            await asked.warm_up()
            known = self._kept.pairs if self._kept else ()
            with suppress(TimeoutError):
                async with asyncio.timeout(within.total_seconds()), aclosing(asked.pairs(known)) as pairs:
                    async for pair in pairs:
                        if self._kept is not None:
                            self._kept.add(pair)
                        self._take(pair)
                        if self._comparison.decided:
                            break
                    if self._comparison.outcome is GateOutcome.RUNNING:
                        await self._judged()

    def _take(self, pair: AnsweredPair) -> None:
        self._comparison.take(pair)
        # The same words a second time are no second opinion.
        if self._scores and pair.stable and pair.canary and pair.prompt not in self._judging:
            asked = self._scores.ask(pair.prompt, pair.prompt, pair.stable.text, pair.canary.text)
            self._judging[pair.prompt] = asyncio.create_task(asked)
        if self._scores:
            self._comparison.take_scores(self._scores.drain())
        self._look(self._comparison)

    async def _judged(self) -> None:
        """What the judge says of the answers that were there."""
        if self._scores and self._judging:
            await asyncio.gather(*self._judging.values())
            self._comparison.take_scores(self._scores.drain())
