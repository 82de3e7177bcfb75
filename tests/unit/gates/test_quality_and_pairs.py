from __future__ import annotations

from gates.model import AnswerScores, Outcome, Pair, Pairs, Reply, Scores, Verdict
from gates.pairs import judge_pairs
from gates.quality import judge_quality
from gates.spec import AgreementGate, QualityGate


def quality(stable: list[float], canary: list[float]) -> Verdict:
    evidence = AnswerScores(
        stable=Scores(by_prompt={f"q{n}": score for n, score in enumerate(stable)}),
        canary=Scores(by_prompt={f"q{n}": score for n, score in enumerate(canary)}),
    )
    return judge_quality(QualityGate(), evidence, deadline_passed=True)


def pair(canary: str, ttft: float = 0.1) -> Pair:
    stable = Reply(text="the capital is Paris", finish_reason="stop", output_tokens=5, ttft_seconds=0.1)
    return Pair(stable=stable, canary=Reply(text=canary, finish_reason="stop", output_tokens=5, ttft_seconds=ttft))


def agreement(pairs: list[Pair], sent: int | None = None, settings: AgreementGate | None = None) -> Verdict:
    evidence = Pairs(sent=sent or len(pairs), answered=tuple(pairs))
    return judge_pairs(settings or AgreementGate(), evidence, deadline_passed=True)


def test_equal_answers_pass_and_wrong_ones_fail() -> None:
    assert quality([1.0] * 24, [1.0] * 24).outcome is Outcome.PASS
    verdict = quality([1.0] * 24, [0.0] * 24)
    assert verdict.outcome is Outcome.FAIL
    assert "scores 0.00 against 1.00" in verdict.reason


def test_one_lost_prompt_may_be_chance_and_does_not_promote() -> None:
    assert quality([1.0] * 24, [1.0] * 23 + [0.0]).outcome is Outcome.INCONCLUSIVE


def test_a_better_canary_passes() -> None:
    assert quality([0.5] * 24, [1.0] * 24).outcome is Outcome.PASS


def test_prompts_that_one_version_did_not_answer_are_no_pass() -> None:
    assert quality([1.0] * 24, [1.0] * 23).outcome is Outcome.INCONCLUSIVE
    assert quality([], []).outcome is Outcome.INCONCLUSIVE


def test_like_answers_agree_and_unlike_ones_fail() -> None:
    assert agreement([pair("Paris is the capital")] * 20).outcome is Outcome.PASS
    assert agreement([pair("purple monkey dishwasher")] * 20).outcome is Outcome.FAIL


def test_pairs_that_did_not_arrive_count_against_the_canary() -> None:
    verdict = agreement([pair("the capital is Paris")] * 10, sent=40)
    assert verdict.outcome is Outcome.FAIL
    assert "10 of the pairs arrived" in verdict.reason
    assert agreement([], sent=20).outcome is Outcome.FAIL


def test_too_few_pairs_are_inconclusive() -> None:
    assert agreement([pair("the capital is Paris")] * 19).outcome is Outcome.INCONCLUSIVE


def test_like_but_late_answers_fail_when_asked_about() -> None:
    late = [pair("the capital is Paris", ttft=0.3)] * 20
    assert agreement(late).outcome is Outcome.PASS
    assert agreement(late, settings=AgreementGate(max_ttft_increase=0.2)).outcome is Outcome.FAIL
