"""The one look at a golden set, whose drop is known, and at a sample, whose drop may be chance."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gates.analyses.quality import QualityGate, chance_of_drop, judge_quality
from gates.model import AnswerScores, GateOutcome, Scores, Verdict

PERFECT = [1.0] * 40


def scores(values: list[float]) -> Scores:
    return Scores(by_prompt={f"question {number}": value for number, value in enumerate(values)})


def judged(
    canary: list[float], stable: list[float], *, max_drop: float = 0.03, sampled: float | None = 0.005
) -> Verdict:
    evidence = AnswerScores(stable=scores(stable), canary=scores(canary))
    return judge_quality(QualityGate(max_drop=max_drop), evidence, sampled=sampled)


@pytest.mark.parametrize(("wrong", "outcome"), [(0, "pass"), (1, "pass"), (2, "fail"), (8, "fail")])
def test_of_a_golden_set_that_was_asked_whole_the_drop_is_known(wrong: int, outcome: str) -> None:
    verdict = judged([0.0] * wrong + [1.0] * (40 - wrong), PERFECT, sampled=None)
    assert (str(verdict.outcome), "by chance" in verdict.reason, "p_value" in verdict.numbers) == (
        outcome,
        False,
        False,
    )


@pytest.mark.parametrize(
    ("wrong", "outcome"),
    [
        (0, GateOutcome.PASS),
        (1, GateOutcome.PASS),
        (2, GateOutcome.INCONCLUSIVE),
        (7, GateOutcome.INCONCLUSIVE),
        (8, GateOutcome.FAIL),
    ],
)
def test_of_a_sample_a_few_wrong_answers_may_be_chance_and_many_may_not(wrong: int, outcome: GateOutcome) -> None:
    """Eight of eight changes for the worse happen by chance once in 256 times, seven once in 128."""
    verdict = judged([0.0] * wrong + [1.0] * (40 - wrong), PERFECT)
    assert verdict.outcome is outcome
    assert verdict.numbers["mean_score_drop"] == pytest.approx(wrong / 40)
    if wrong:
        assert verdict.numbers["p_value"] == pytest.approx(2.0**-wrong, rel=0.1)


@pytest.mark.parametrize("right", [0, 1])
def test_where_no_arm_scores_more_than_may_be_lost_nothing_passes(right: int) -> None:
    scores = [1.0] * right + [0.0] * (40 - right)
    verdict = judged(scores, scores)
    assert verdict.outcome is GateOutcome.INCONCLUSIVE and "max_tokens" in verdict.reason
    assert judged([1.0] * 40, scores).outcome is GateOutcome.PASS


def test_the_sentences() -> None:
    assert judged(PERFECT, PERFECT).reason == (
        "canary scores 1.00 against 1.00 of the champion on 40 golden prompts (+0.00, allowed -0.03)"
    )
    fail = judged([0.0] * 20, [1.0] * 20)
    assert fail.reason.startswith(
        "canary scores 0.00 against 1.00 of the champion on 20 golden prompts (-1.00, allowed -0.03); "
        "by chance that happens once in "
    )
    few = judged([0.0] * 5 + [1.0] * 7, [1.0] * 12)
    assert few.reason == (
        "canary scores 0.58 against 1.00 of the champion on 12 golden prompts (-0.42, allowed -0.03); "
        "by chance that happens once in 32 times, and once in 200 would be needed: "
        "12 golden prompts decide only if 8 or more are worse and none better; add about 8"
    )


def test_improvements_weigh_against_losses_prompt_by_prompt() -> None:
    assert judged([0.0, 1.0] * 20, [1.0, 0.0] * 20).outcome is GateOutcome.PASS
    assert judged([0.2, 0.9] * 20, [1.0, 0.0] * 20).outcome is GateOutcome.PASS


def test_a_drop_of_just_the_margin_passes() -> None:
    assert judged([0.97] * 40, PERFECT).outcome is GateOutcome.PASS
    assert judged([0.9699] * 40, PERFECT).outcome is GateOutcome.FAIL


@pytest.mark.parametrize(
    ("canary", "stable", "counts"),
    [
        ([], [], "0 prompts are answered by the canary and 0 by the champion, 0 by both"),
        ([], PERFECT, "0 prompts are answered by the canary and 40 by the champion, 0 by both"),
        (PERFECT, [], "40 prompts are answered by the canary and 0 by the champion, 0 by both"),
        (PERFECT[:39], PERFECT, "39 prompts are answered by the canary and 40 by the champion, 39 by both"),
        (PERFECT[:9], PERFECT[:9], "9 prompts are answered by the canary and 9 by the champion, 9 by both"),
    ],
    ids=["nothing", "no canary", "no champion", "one left out", "too few"],
)
def test_missing_answers_never_pass(canary: list[float], stable: list[float], counts: str) -> None:
    verdict = judged(canary, stable, max_drop=1.0)
    assert verdict.outcome is GateOutcome.INCONCLUSIVE
    assert verdict.reason == f"{counts}; the same prompts, at least 10, are needed"


@pytest.mark.parametrize("score", [math.nan, math.inf, -0.1, 1.1])
def test_what_is_no_score_is_refused(score: float) -> None:
    with pytest.raises(ValidationError):
        scores([score])


@given(drops=st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0]), min_size=1, max_size=8))
def test_the_chance_is_that_of_every_way_to_swap_answers(drops: list[float]) -> None:
    values = np.asarray(drops)
    means = [np.mean(np.asarray(signs) * values) for signs in product((-1, 1), repeat=len(values))]
    expected = np.mean(np.asarray(means) >= values.mean() - 1e-12)
    # Of nothing but ties every swap is as good.
    assert chance_of_drop(values) == pytest.approx(expected if values.any() else 1.0)


@pytest.mark.long
def test_the_same_scores_give_the_same_verdict() -> None:
    rng = np.random.default_rng(3)
    canary, stable = rng.uniform(0, 0.9, 60).tolist(), rng.uniform(0.1, 1, 60).tolist()
    assert judged(canary, stable) == judged(canary, stable)


@pytest.mark.long
def test_a_version_that_is_as_good_is_seldom_taken_back() -> None:
    """Both answer each prompt alike often; at most one set in a hundred may look worse enough."""
    rng = np.random.default_rng(8)
    outcomes = []
    for _ in range(150):
        skill = rng.uniform(0.3, 1, 10)
        canary, stable = (rng.binomial(1, skill).astype(float).tolist() for _ in range(2))
        outcomes.append(judged(canary, stable, sampled=0.01).outcome)
    assert outcomes.count(GateOutcome.FAIL) <= 4
