"""Quality while the golden set is being asked: stops early, keeps its chances, and ends as the whole set says."""

from __future__ import annotations

import numpy as np
import pytest
from alike import long

from gates.analyses.quality import QualityGate, QualityTest, judge_quality
from gates.model import AnswerScores, GateOutcome, Scores

GATE = QualityGate(max_drop=0.1)


def a_test(prompts: int = 200, *, gate: QualityGate = GATE, rollback: float = 0.01) -> QualityTest:
    return QualityTest(gate, prompts=prompts, rollback=rollback, accept=0.05)


def test_a_version_that_answers_nothing_right_fails_after_a_few_prompts() -> None:
    test = a_test()
    for number in range(200):
        test.take(str(number), 1.0, 0.0)
        if test.verdict().outcome is GateOutcome.FAIL:
            break
    assert number < 20
    assert f"over {number + 1} of 200 golden prompts (-1.00, allowed -0.1): evidence" in test.verdict().reason
    for more in range(number + 1, 200):
        test.take(str(more), 1.0, 1.0)
    assert test.verdict().outcome is GateOutcome.FAIL, "a fail stays one"


def test_an_equal_version_passes_before_the_last_prompt() -> None:
    test = a_test()
    for number in range(200):
        test.take(str(number), number % 2, number % 2)
        if test.verdict().outcome is GateOutcome.PASS:
            break
    assert GATE.min_prompts <= number < 100


def test_where_no_arm_scores_it_does_not_pass_before_the_last_prompt_nor_with_it() -> None:
    test = a_test()
    for number in range(200):
        assert test.verdict().outcome is GateOutcome.RUNNING
        test.take(str(number), 0.0, 0.0)
    assert test.verdict().outcome is GateOutcome.INCONCLUSIVE
    assert "max_tokens" in test.verdict().reason


def test_a_small_set_is_judged_as_a_whole_with_its_last_prompt() -> None:
    stable, canary = dict.fromkeys("abcdefghijkl", 1.0), dict.fromkeys("abcdefghijkl", 1.0) | {"a": 0.9}
    test = a_test(len(stable), gate=QualityGate(max_drop=0.02))
    for prompt in stable:
        assert test.verdict().outcome is GateOutcome.RUNNING
        test.take(prompt, stable[prompt], canary[prompt])
    evidence = AnswerScores(stable=Scores(by_prompt=stable), canary=Scores(by_prompt=canary))
    assert test.verdict() == judge_quality(QualityGate(max_drop=0.02), evidence)
    assert test.verdict().outcome is GateOutcome.PASS


def test_a_prompt_that_is_asked_again_says_nothing_new() -> None:
    once, often = a_test(), a_test()
    once.take("a", 1.0, 0.0)
    for _ in range(50):
        often.take("a", 1.0, 0.0)
    assert once.verdict() == often.verdict()


def test_without_answers_of_both_nothing_is_known() -> None:
    test = a_test()
    test.take("a", 1.0, None)
    test.take("b", None, 1.0)
    verdict = test.verdict(deadline_passed=True)
    assert (verdict.outcome, verdict.reason) == (
        GateOutcome.INCONCLUSIVE,
        "no prompt of the golden set is answered by both",
    )


def test_a_small_set_fails_as_soon_as_the_other_prompts_cannot_save_it() -> None:
    test = a_test(12)
    for number in range(12):
        test.take(str(number), 1.0, 0.0)
        if test.verdict().outcome is GateOutcome.FAIL:
            break
    assert number + 1 == 7, "7 lost, 5 could be won: 2 of 12 are more than a tenth"
    assert test.verdict().reason.endswith("worse than allowed whatever the other 5 score")


def test_a_prompt_that_stays_without_an_answer_leaves_nothing_to_wait_for() -> None:
    test = a_test(12, gate=QualityGate(max_drop=0.01))
    for number in range(11):
        test.take(str(number), 1.0, 1.0)
    for _ in range(3):
        assert not test.asked_whole
        test.take("11", 1.0, None)
    verdict = test.verdict()
    assert (test.asked_whole, verdict.outcome) == (True, GateOutcome.INCONCLUSIVE)
    assert verdict.reason.endswith("without the other 1, which were asked 3 times, nothing passes")


@pytest.mark.parametrize("flips", [long(0.05), 0.3])
def test_looking_after_each_prompt_keeps_its_budget(flips: float) -> None:
    random, failed, runs = np.random.default_rng(7), 0, 200
    for _ in range(runs):
        # Far more than are answered: what is known of the whole set is no matter of chance.
        test = a_test(200, gate=QualityGate(max_drop=0.03), rollback=0.1)
        for number in range(60):
            stable, canary = random.random(2) < flips
            test.take(str(number), float(stable), float(canary))
        failed += test.verdict().outcome is GateOutcome.FAIL
    assert failed / runs <= 0.1
