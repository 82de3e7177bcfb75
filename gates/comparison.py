"""Two endpoints side by side on a golden set, judged after every pair of answers: quality by the set's scorers,
everything else as a sequential test. What is asked is fixed before the first answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from pydantic import Field

from gates.analyses.errors import ErrorsGate
from gates.analyses.latency import LatencyGate
from gates.analyses.quality import QualityGate, QualityTest
from gates.answers.golden import GoldenPrompt, score_answers
from gates.answers.likeness import paired_answer
from gates.evidence.batch import Batch
from gates.judge.judge import ScoresEvidence
from gates.judge.spec import JudgeGate
from gates.model import ApiForm, DifferingPrompt, EngineReply, GateOutcome, Verdict, worst
from gates.ports import Embedder, LanguageDetector
from gates.sequential_test import AnalysisPlan, SequentialTest, analysis_plan_of
from gates.spec import Gates, GatesByName
from tidegate.core.model import Value
from tidegate.core.text import LONGEST, one_line

MOST_DIFFERING = 20
LEAST_STEP = 1e-6
"""Seconds between two pairs: times of evidence rise, also where a clock does not."""
UNLESS_SAID = Gates(latency=LatencyGate(), errors=ErrorsGate(max_increase=0.05))
"""Gates besides quality where no file names any. Of a few hundred prompts no more than 5 points can be told."""


class Endpoint(Value):
    """One arm: where it is asked, and by which name."""

    url: str
    """Base address, with `/v1` or what stands for it."""
    model: str
    api: ApiForm = ApiForm.CHAT

    def __str__(self) -> str:
        return f"{self.model} at {self.url}"


class EndpointsLine(Value):
    """The first line of a file of answers: whose they are."""

    kind: Literal["endpoints"] = "endpoints"
    stable: Endpoint
    canary: Endpoint


class AnsweredPair(Value):
    """What both endpoints answered to one prompt, asked at the same moment."""

    kind: Literal["pair"] = "pair"
    time: float = Field(ge=0, allow_inf_nan=False)
    """Unix time in seconds when both were over; rises within a comparison."""
    prompt: str
    stable: EngineReply | None
    """None when it was reached and did not answer as endpoints do."""
    canary: EngineReply | None
    stable_error: str = ""
    """Why there is no answer."""
    canary_error: str = ""


class ComparisonPlan(Value):
    """The gates of one comparison, with shares of one error budget."""

    name: str
    quality: QualityGate
    pairs: AnalysisPlan
    """Of the gates on pairs, with their part of the budget."""
    judge: JudgeGate | None = None
    """Who is asked for the scores of the gate `judge`."""
    not_asked: tuple[str, ...] = ()
    """Gates that pairs of answers cannot answer."""
    rollback: float
    """The chance that this comparison fails a version that is no worse, over all gates and looks."""

    @property
    def gates(self) -> tuple[str, ...]:
        """In the order of their verdicts."""
        return (QualityGate.name, *self.pairs.gates)


def comparison_plan(name: str, said: GatesByName | None) -> ComparisonPlan:
    """The plan for the section `gates` of a delivery or of a file of kind Gates; None asks the usual gates.

    A golden set always asks quality, with default settings where the section has none.
    """
    gates = said or UNLESS_SAID
    judge = gates.only(JudgeGate)
    # A file of kind Gates has a judge's scores from elsewhere: nobody is named who gives some here.
    kinds = {gate: gates.kind_of(gate) for gate in gates.asked}
    asked = [gate for gate, kind in kinds.items() if kind.from_pairs and (judge or not kind.judged)]
    share = len(asked) / (1 + len(asked))
    # A plan without gates spends nothing, but needs a chance.
    pairs = analysis_plan_of(gates, asked, sources=dict.fromkeys(asked, ("probe",)), share=share or 1.0)
    quality = gates.only(QualityGate)
    return ComparisonPlan(
        name=name,
        quality=quality or QualityGate(),
        pairs=pairs,
        judge=judge,
        not_asked=tuple(gate for gate, each in gates.asked.items() if gate not in asked and each is not quality),
        rollback=gates.budget.rollback,
    )


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
        share = plan.rollback / len(plan.gates)
        self._quality = QualityTest(plan.quality, prompts=len(self._golden), rollback=share, accept=plan.pairs.accept)
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
