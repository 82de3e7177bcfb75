"""Judges pairs of answers as they come: quality by the golden set's scorers, everything else as a sequential test."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from gates.analyses.quality import QualityGate, QualityTest
from gates.answers.golden import GoldenPrompt, score_answers
from gates.answers.likeness import paired_answer
from gates.comparison.model import LEAST_STEP, AnsweredPair
from gates.comparison.plan import ComparisonPlan
from gates.evidence.batch import Batch
from gates.judge.judge import ScoresEvidence
from gates.model import DifferingPrompt, EngineReply, GateOutcome, Verdict, worst
from gates.ports import Embedder, LanguageDetector
from gates.sequential_test import SequentialTest
from tidegate.core.text import LONGEST, one_line

MOST_DIFFERING = 20


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
        self._differing: dict[str, DifferingPrompt] = {}

    def take(self, pair: AnsweredPair) -> None:
        """Learn from one pair.

        Raises:
            UsageError: the pair is not later than the last.
        """
        read = paired_answer(pair.stable, pair.canary, languages=self._languages, embedder=self._likeness)
        self._test.take(Batch(time=pair.time, source="probe", pairs=(read,)))
        entry = self._golden[pair.prompt]
        stable, canary = self._score(entry, pair.stable), self._score(entry, pair.canary)
        self._quality.take(pair.prompt, stable, canary)
        if pair.stable and pair.canary and stable is not None and canary is not None and stable != canary:
            texts = (pair.prompt, entry.expected, pair.stable.text, pair.canary.text)
            prompt, expected, *answers = (one_line(text)[:LONGEST] for text in texts)
            found = DifferingPrompt(
                prompt=prompt,
                expected=expected,
                stable=answers[0],
                canary=answers[1],
                stable_score=stable,
                canary_score=canary,
            )
            self._differing.setdefault(pair.prompt, found)
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
        """Whether more answers can change nothing: one gate failed, or each passed or has no more to learn."""
        verdicts = self.verdicts()
        return any(each.outcome is GateOutcome.FAIL for each in verdicts) or all(
            each.outcome is GateOutcome.PASS or self._has_all(each.gate) for each in verdicts
        )

    def _has_all(self, gate: str) -> bool:
        """Scores are of a prompt's first answers; everything else is measured again in each round."""
        scored = gate == QualityGate.name or self.plan.pairs.settings[gate].judged
        return scored and self._quality.asked_whole

    @property
    def differing(self) -> tuple[DifferingPrompt, ...]:
        """The prompts whose scores differ, worst first, at most `MOST_DIFFERING`."""
        worst_first = sorted(self._differing.values(), key=lambda each: -each.drop)
        return tuple(worst_first[:MOST_DIFFERING])

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
