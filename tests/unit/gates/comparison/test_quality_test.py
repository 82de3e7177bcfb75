"""Quality while the golden set is being asked: as the whole set says, no sooner but where the rest cannot save it."""

from __future__ import annotations

import pytest

from gates.analyses.quality import QualityGate, judge_part, judge_quality
from gates.model import AnswerScores, GateOutcome, Scores, Verdict

GATE = QualityGate(max_drop=0.1)


def after(stable: list[float], canary: list[float], *, prompts: int = 12, over: bool = False) -> Verdict:
    arms = [Scores(by_prompt={str(at): score for at, score in enumerate(scores)}) for scores in (stable, canary)]
    return judge_part(GATE, AnswerScores(stable=arms[0], canary=arms[1]), prompts=prompts, deadline_passed=over)


@pytest.mark.parametrize(
    ("lost", "outcome", "words"),
    [
        (0, GateOutcome.RUNNING, "over 0 of 12 golden prompts (+0.00, allowed -0.1): the other 12 decide"),
        (6, GateOutcome.RUNNING, "the other 6 decide"),
        # 7 lost, 5 could be won: 2 of 12 are more than a tenth.
        (7, GateOutcome.FAIL, "(-1.00, allowed -0.1): worse than allowed whatever the other 5 score"),
    ],
)
def test_it_fails_as_soon_as_the_other_prompts_cannot_save_it(lost: int, outcome: GateOutcome, words: str) -> None:
    verdict = after([1.0] * lost, [0.0] * lost)
    assert verdict.outcome is outcome and verdict.reason.endswith(words)


def test_the_whole_set_is_judged_as_in_the_offline_stage() -> None:
    stable, canary = [1.0] * 12, [0.9] + [1.0] * 11
    scores = [Scores(by_prompt={str(at): score for at, score in enumerate(each)}) for each in (stable, canary)]
    assert after(stable, canary) == judge_quality(GATE, AnswerScores(stable=scores[0], canary=scores[1]))
    assert after(stable, canary).outcome is GateOutcome.PASS


def test_a_set_that_was_not_asked_whole_passes_nothing() -> None:
    assert after([1.0] * 11, [1.0] * 11, over=True).outcome is GateOutcome.INCONCLUSIVE
