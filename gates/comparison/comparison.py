"""Judges pairs of answers as they come: quality by the golden set's scorers, everything else as a sequential test."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from gates.analyses.quality_test import QualityTest
from gates.answers.golden import GoldenPrompt, score_answers
from gates.answers.likeness import paired_answer
from gates.comparison.model import LEAST_STEP, AnsweredPair
from gates.comparison.plan import ComparisonPlan
from gates.evidence.batch import Batch
from gates.judge.scored_pairs import ScoresEvidence
from gates.model import EngineReply, GateOutcome, Verdict, worst
from gates.ports import Embedder, LanguageDetector
from gates.sequential_test import SequentialTest


class EndpointComparison:
    """Takes pairs, answers verdicts; the same pairs always give the same verdicts, but for a judge's scores."""

    def __init__(
        self,
        plan: ComparisonPlan,
        golden: Sequence[GoldenPrompt],
        *,
        embedder: Embedder | None = None,
        likeness: Embedder | None = None,
        languages: LanguageDetector | None = None,
    ) -> None:
        """`embedder` scores by meaning; `likeness` is one for likeness by meaning, else it is that of words."""
        self.plan = plan
        self._golden = {entry.prompt: entry for entry in golden}
        self._quality = QualityTest(
            plan.quality, prompts=len(self._golden), rollback=plan.rollback_each, accept=plan.pairs.accept
        )
        self._test = SequentialTest(plan.pairs)
        self._embedder, self._likeness, self._languages = embedder, likeness, languages
        self._alike: list[float] = []
        self.times: list[float] = []
        """Of the pairs that were taken."""
        self.unanswered = 0
        """Answers that did not come, of either arm."""

    def take(self, pair: AnsweredPair) -> None:
        """Learn from one pair.

        Raises:
            UsageError: the pair is not later than the last.
        """
        read = paired_answer(pair.stable, pair.canary, languages=self._languages, embedder=self._likeness)
        self._test.take(Batch(time=pair.time, source="probe", pairs=(read,)))
        entry = self._golden[pair.prompt]
        self._quality.take(pair.prompt, self._score(entry, pair.stable), self._score(entry, pair.canary))
        self._alike += [] if read.similarity is None else [read.similarity]
        self.unanswered += (pair.stable is None) + (pair.canary is None)
        self.times.append(pair.time)

    def take_scores(self, scores: ScoresEvidence) -> None:
        """Learn what a judge has said since the last pair; it comes right behind that pair."""
        if scores:
            self._test.take(Batch(time=self.times[-1] + LEAST_STEP / 2, source="probe", **scores))

    def verdicts(self, *, deadline_passed: bool = False) -> tuple[Verdict, ...]:
        """Quality first, then the gates of the plan in its order."""
        first = self._quality.verdict(deadline_passed=deadline_passed)
        return (first, *self._test.verdicts(deadline_passed=deadline_passed))

    @property
    def outcome(self) -> GateOutcome:
        """The worst of all gates, while answers still come."""
        return worst(verdict.outcome for verdict in self.verdicts())

    @property
    def decided(self) -> bool:
        """Whether more answers can change nothing: one gate failed, or all passed."""
        return self.outcome in (GateOutcome.FAIL, GateOutcome.PASS)

    @property
    def likeness(self) -> float | None:
        """Mean likeness of the answers of a pair, 0 to 1; None before there is one."""
        return fmean(self._alike) if self._alike else None

    def _score(self, entry: GoldenPrompt, reply: EngineReply | None) -> float | None:
        if reply is None:
            return None
        scorer = self.plan.quality.scorer
        scores = score_answers([entry], {entry.prompt: reply.text}, scorer, embedder=self._embedder)
        return scores.by_prompt.get(entry.prompt)
