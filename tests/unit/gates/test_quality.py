"""A golden set is asked whole, so its drop is known; before that only what the rest cannot change is said."""

from __future__ import annotations

import pytest

from gates.analyses.quality import QualityGate, Scores, judge_part, judge_quality
from gates.model import GateOutcome, Verdict

PERFECT = [1.0] * 40
GATE = QualityGate(max_drop=0.1)


def scores(values: list[float]) -> Scores:
    return {f"question {number}": value for number, value in enumerate(values)}


def judged(canary: list[float], stable: list[float], *, max_drop: float = 0.03) -> Verdict:
    return judge_quality(QualityGate(max_drop=max_drop), scores(stable), scores(canary))


@pytest.mark.parametrize(("wrong", "outcome"), [(0, "pass"), (1, "pass"), (2, "fail"), (8, "fail")])
def test_of_a_golden_set_that_was_asked_whole_the_drop_is_known(wrong: int, outcome: str) -> None:
    verdict = judged([0.0] * wrong + [1.0] * (40 - wrong), PERFECT)
    assert str(verdict.outcome) == outcome
    assert verdict.numbers["mean_score_drop"] == pytest.approx(wrong / 40)
    if not wrong:
        words = "canary scores 1.00 against 1.00 of the champion on 40 golden prompts (+0.00, allowed -0.03)"
        assert verdict.reason == words


@pytest.mark.parametrize("right", [0, 1])
def test_where_no_arm_scores_more_than_may_be_lost_nothing_passes(right: int) -> None:
    scores = [1.0] * right + [0.0] * (40 - right)
    verdict = judged(scores, scores)
    assert verdict.outcome is GateOutcome.INCONCLUSIVE and "max_tokens" in verdict.reason
    assert judged([1.0] * 40, scores).outcome is GateOutcome.PASS


def test_improvements_weigh_against_losses_and_a_drop_of_just_the_margin_passes() -> None:
    assert judged([0.2, 0.9] * 20, [1.0, 0.0] * 20).outcome is GateOutcome.PASS
    assert judged([0.97] * 40, PERFECT).outcome is GateOutcome.PASS
    assert judged([0.9699] * 40, PERFECT).outcome is GateOutcome.FAIL


@pytest.mark.parametrize(
    ("canary", "stable", "counts"),
    [
        ([], [], "0 prompts are answered by the canary and 0 by the champion, 0 by both"),
        (PERFECT, [], "40 prompts are answered by the canary and 0 by the champion, 0 by both"),
        (PERFECT[:39], PERFECT, "39 prompts are answered by the canary and 40 by the champion, 39 by both"),
        (PERFECT[:9], PERFECT[:9], "9 prompts are answered by the canary and 9 by the champion, 9 by both"),
    ],
    ids=["nothing", "no champion", "one left out", "too few"],
)
def test_missing_answers_never_pass(canary: list[float], stable: list[float], counts: str) -> None:
    verdict = judged(canary, stable, max_drop=1.0)
    assert verdict.outcome is GateOutcome.INCONCLUSIVE
    assert verdict.reason == f"{counts}; the same prompts, at least 10, are needed"


def after(stable: list[float], canary: list[float], *, over: bool = False) -> Verdict:
    return judge_part(GATE, scores(stable), scores(canary), prompts=12, deadline_passed=over)


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


def test_the_whole_set_is_judged_as_in_the_offline_stage_and_a_part_passes_nothing() -> None:
    stable, canary = [1.0] * 12, [0.9] + [1.0] * 11
    assert after(stable, canary) == judge_quality(GATE, scores(stable), scores(canary))
    assert after(stable[1:], canary[1:], over=True).outcome is GateOutcome.INCONCLUSIVE
