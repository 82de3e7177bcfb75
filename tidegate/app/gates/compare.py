"""Compares two endpoints: asks both the golden set, judges after every pair, ends when no gate can change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from gates.answers.golden import GoldenPrompt, load_golden
from gates.comparison.answers_file import AnswersFile
from gates.comparison.asking import PairedPrompts
from gates.comparison.comparison import EndpointComparison
from gates.comparison.model import AnsweredPair, ApiForm
from gates.comparison.plan import ComparisonPlan, comparison_plan
from gates.judge.scored_pairs import ScoredPairs
from gates.model import GateOutcome
from gates.reports.gate_file import GateFile
from pipelines.spec.delivery import Delivery
from tidegate.app.wiring.gates.endpoints import ArmOptions, comparison_of, endpoint_client, endpoint_of, scores_of
from tidegate.core.errors import UsageError
from tidegate.core.process import note
from tidegate.core.spec import Problem, SpecError, load_spec, stated_kind


@dataclass(frozen=True)
class CompareOptions:
    """As the options say it."""

    golden: Path
    gates: Path | None
    answers: Path | None
    """The file in which answers are kept, and whose answers are judged first."""
    arms: tuple[ArmOptions, ArmOptions] | None
    """Stable and canary; None to judge answers that the file has."""
    api: str
    """The value of an `ApiForm`."""
    concurrency: int
    """Pairs under way at once."""
    within: timedelta
    timeout: timedelta
    """How long an endpoint may stay silent."""


Look = Callable[[EndpointComparison], None]
"""Is shown the comparison after every pair."""


def compare(options: CompareOptions, look: Look) -> EndpointComparison:
    """Both endpoints compared, as far as needed for a verdict or as time allows.

    Raises:
        UsageError: an option is wrong, or there is nothing to judge.
        SpecError: the golden set, the gates or the file of answers is wrong.
        OutsideError: an endpoint was not reached.
    """
    plan = _plan(options)
    golden = load_golden(options.golden, plan.quality.scorer)
    comparison = comparison_of(plan, golden)
    if len(golden) < plan.quality.min_prompts:
        raise UsageError(
            f"--golden {options.golden}: found {len(golden)} prompts; gate quality needs {plan.quality.min_prompts} "
            "(min_prompts)",
            hint=f"add {plan.quality.min_prompts - len(golden)}, or lower min_prompts in --gates",
        )
    with AnswersFile(options.answers) if options.answers else nullcontext() as kept:
        if kept is not None:
            _refuse_other_set(kept, golden, options)
        if options.arms is None and not (kept and kept.pairs):
            raise UsageError("no endpoint is given, and no answers are kept", hint="give --stable URL and --canary URL")
        asyncio.run(_Work(options, comparison, golden, kept, look).run())
    return comparison


def _plan(options: CompareOptions) -> ComparisonPlan:
    if options.gates is None:
        return comparison_plan(options.golden.stem, None)
    if stated_kind(options.gates) == "Delivery":
        spec = load_spec(options.gates, Delivery)
        return comparison_plan(spec.metadata.name, spec.gates)
    asked = load_spec(options.gates, GateFile)
    return comparison_plan(asked.metadata.name or options.gates.stem, asked.gates)


def _refuse_other_set(kept: AnswersFile, golden: Sequence[GoldenPrompt], options: CompareOptions) -> None:
    prompts = {entry.prompt for entry in golden}
    for number, pair in enumerate(kept.pairs, start=2):
        if pair.prompt not in prompts:
            expected = f"prompts of {options.golden}; name another file for another golden set"
            raise SpecError([Problem(str(options.answers), number, "prompt", "a prompt of another set", expected)])


class _Work:
    """One comparison: first the answers that are there, then new ones."""

    def __init__(
        self,
        options: CompareOptions,
        comparison: EndpointComparison,
        golden: Sequence[GoldenPrompt],
        kept: AnswersFile | None,
        look: Look,
    ) -> None:
        self._options, self._comparison, self._golden = options, comparison, golden
        self._kept, self._look = kept, look
        self._scores: ScoredPairs | None = None
        self._judging: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Until there is a verdict, or the time is over, or all answers that are there were judged."""
        options, known = self._options, self._kept.pairs if self._kept else ()
        self._scores = await scores_of(self._comparison.plan, (options.gates or options.golden).parent)
        try:
            if known:
                note(f"{options.answers}: {len(known):,} pairs of answers are there already")
            for pair in known:
                self._take(pair)
            await self._judged()
            if options.arms is not None and not self._comparison.decided:
                await self._ask(options.arms, known)
        finally:
            for task in self._judging.values():
                task.cancel()
            await asyncio.gather(*self._judging.values(), return_exceptions=True)

    async def _ask(self, arms: tuple[ArmOptions, ArmOptions], known: Sequence[AnsweredPair]) -> None:
        options = self._options
        stable, canary = [await endpoint_of(arm, ApiForm(options.api)) for arm in arms]
        if self._kept is not None:
            self._kept.begin(stable, canary)
        seconds = options.timeout.total_seconds()
        async with (
            endpoint_client(stable, arms[0], timeout_seconds=seconds) as of_stable,
            endpoint_client(canary, arms[1], timeout_seconds=seconds) as of_canary,
        ):
            asked = PairedPrompts(of_stable, of_canary, self._golden, concurrency=options.concurrency, now=time.time)
            note(f"stable is {stable}, canary is {canary}")
            await asked.warm_up()
            with suppress(TimeoutError):
                async with asyncio.timeout(options.within.total_seconds()), aclosing(asked.pairs(known)) as pairs:
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
