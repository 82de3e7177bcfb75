"""Two endpoints side by side on a golden set, judged after every pair of answers: quality by the set's scorers,
everything else as a sequential test. What is asked is fixed before the first answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from gates.analyses.quality import QualityGate, judge_part
from gates.answers.golden import GoldenPrompt
from gates.answers.likeness import paired_answer
from gates.evidence.batch import Batch
from gates.judge.judge import ScoresEvidence
from gates.judge.spec import JudgeGate
from gates.model import ChatAnswer, DifferingPrompt, GateOutcome, Verdict, worst
from gates.sequential_test import AnalysisPlan, SequentialTest, analysis_plan_of
from gates.spec import Gates, GatesByName
from tidegate.core.model import Value
from tidegate.core.text import LONGEST, one_line

MOST_DIFFERING = 20
LEAST_STEP = 1e-6
"""Seconds between two pairs: times of evidence rise, also where a clock does not."""
UNLESS_SAID = Gates.model_validate({"latency": {}, "errors": {"max_increase": 0.05}})
"""Gates besides quality where no file names any. Of a few hundred prompts no more than 5 points can be told."""


class AnsweredPair(Value):
    """What both endpoints answered to one prompt, asked at the same moment."""

    time: float
    """Unix time in seconds when both were over."""
    prompt: str
    stable: ChatAnswer | None
    """None when it was reached and did not answer as endpoints do."""
    canary: ChatAnswer | None


class ComparisonPlan(Value):
    """The gates of one comparison. Of a golden set that is asked whole the drop is known: it spends no error budget."""

    name: str
    quality: QualityGate
    pairs: AnalysisPlan
    """Of the gates on pairs."""
    judge: JudgeGate | None = None
    """Who is asked for the scores of the gate `judge`."""
    not_asked: tuple[str, ...] = ()
    """Gates that pairs of answers cannot answer."""

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
    quality = gates.only(QualityGate)
    return ComparisonPlan(
        name=name,
        quality=quality or QualityGate(),
        pairs=analysis_plan_of(gates, asked, sources=dict.fromkeys(asked, ("probe",)), share=1.0),
        judge=judge,
        not_asked=tuple(gate for gate, each in gates.asked.items() if gate not in asked and each is not quality),
    )


class EndpointComparison:
    """Takes pairs, answers verdicts; the same pairs always give the same verdicts, but for a judge's scores."""

    def __init__(self, plan: ComparisonPlan, golden: Sequence[GoldenPrompt]) -> None:
        """Nothing was asked yet."""
        self.plan = plan
        self._golden = {entry.prompt: entry for entry in golden}
        self._test = SequentialTest(plan.pairs)
        self._scores: dict[str, tuple[float, float]] = {}
        """Stable's and the canary's first scores of each prompt that both have answered."""
        self._asked: set[str] = set()
        self.times: list[float] = []
        """Of the pairs that were taken."""
        self._differing: list[DifferingPrompt] = []

    def take(self, pair: AnsweredPair) -> None:
        """Learn from one pair."""
        self.times.append(max([pair.time, *(last + LEAST_STEP for last in self.times[-1:])]))
        pairs = (paired_answer(pair.stable, pair.canary),)
        self._test.take(Batch(time=self.times[-1], source="probe", pairs=pairs))
        self._asked.add(pair.prompt)
        if pair.stable and pair.canary and pair.prompt not in self._scores:
            self._score(self._golden[pair.prompt], pair.stable.text, pair.canary.text)

    def _score(self, entry: GoldenPrompt, *answers: str) -> None:
        stable, canary = (entry.points(text, self.plan.quality.scorer) for text in answers)
        self._scores[entry.prompt] = stable, canary
        if stable != canary:
            texts = (one_line(text)[:LONGEST] for text in (entry.prompt, entry.expected, *answers))
            told = dict(zip(("prompt", "expected", "stable", "canary"), texts, strict=True))
            self._differing.append(DifferingPrompt(**told, stable_score=stable, canary_score=canary))

    def take_scores(self, scores: ScoresEvidence) -> None:
        """Learn what a judge has said since the last pair; it comes right behind that pair."""
        if scores:
            self._test.take(Batch(time=self.times[-1] + LEAST_STEP / 2, source="probe", **scores))

    def verdicts(self, *, deadline_passed: bool = False) -> tuple[Verdict, ...]:
        """Quality first, then the gates of the plan in its order."""
        stable, canary = ({prompt: both[arm] for prompt, both in self._scores.items()} for arm in (0, 1))
        prompts = len(self._golden)
        first = judge_part(self.plan.quality, stable, canary, prompts=prompts, deadline_passed=deadline_passed)
        return (first, *self._test.verdicts(deadline_passed=deadline_passed))

    @property
    def decided(self) -> bool:
        """Whether more answers can change nothing: one gate failed, or each passed or has no more to learn."""
        verdicts = self.verdicts()
        return worst(verdict.outcome for verdict in verdicts) is GateOutcome.FAIL or all(
            each.outcome is GateOutcome.PASS or self._has_all(each.gate) for each in verdicts
        )

    def _has_all(self, gate: str) -> bool:
        """Scores are of a prompt's first answers; everything else is measured again in each round."""
        scored = gate == QualityGate.name or self.plan.pairs.settings[gate].judged
        return scored and len(self._asked) == len(self._golden)

    @property
    def differing(self) -> tuple[DifferingPrompt, ...]:
        """The prompts whose scores differ, worst first, at most `MOST_DIFFERING`."""
        return tuple(sorted(self._differing, key=lambda each: -each.drop)[:MOST_DIFFERING])
