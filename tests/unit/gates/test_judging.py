from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable

import numpy as np
import pytest
from alike import long
from fakes.services.chat_servers import FakeJudge, an_answer, worth_of

from gates.evidence.batch import Dimension
from gates.judge.control import PLEA, foil_of, same_opinion
from gates.judge.judge import Judge, JudgedAnswer, ScoredPairs, composite, draw, settle
from gates.judge.rubric import JudgeClient, JudgeReply, JudgeRequest, NoScoreReason
from gates.judge.spec import JudgeControl, JudgeGate
from tidegate.core.errors import OutsideError

EVEN = dict.fromkeys(Dimension, 1.0)
Judged = tuple[JudgedAnswer, ...] | NoScoreReason
GATE = JudgeGate(endpoint="http://127.0.0.1:9/v1", model="judge", sample=1.0)


async def judged(
    client: JudgeClient, *, stable: float = 0.8, canary: float = 0.8, pairs: int = 400, gate: JudgeGate = GATE
) -> tuple[Judge, list[Judged]]:
    """Let `client` judge so many pairs of answers that are worth so much."""
    judge = Judge(gate, client, seed=7)
    found = []
    for number in range(pairs):
        words = f"number{number}"
        answers = an_answer(stable, words), an_answer(canary, words)
        found.append(await judge.judge(str(number), f"what is {words}?", *answers))
    return judge, found


def mean_drop(found: list[Judged]) -> float:
    return float(np.mean([pair[0].score - pair[1].score for pair in found if not isinstance(pair, NoScoreReason)]))


async def test_two_empty_answers_are_not_put_to_a_judge() -> None:
    client = FakeJudge(worth=lambda *_: 0.5)
    scored = ScoredPairs(Judge(GATE, client, seed=7))
    await scored.ask("1", "what?", "", "\n")
    assert not client.requests
    await scored.ask("1", "what?", "", "an answer")
    assert client.requests


def test_lots_depend_on_seed_and_key_alone_and_have_their_shares() -> None:
    gate = JudgeGate(endpoint="http://h/v1", model="m")
    lots = [draw(1, f"request-{number}", gate) for number in range(20_000)]
    assert lots[17] == draw(1, "request-17", gate) != draw(2, "request-17", gate)
    assert np.mean([lot.judged for lot in lots]) == pytest.approx(0.05, abs=0.006)
    assert np.mean([lot.control for lot in lots]) == pytest.approx(0.2, abs=0.011)
    assert np.mean([lot.swapped for lot in lots]) == pytest.approx(0.5, abs=0.014)
    # Whether a pair is judged must tell nothing about who stands first.
    assert np.mean([lot.swapped for lot in lots if lot.judged]) == pytest.approx(0.5, abs=0.06)


def test_the_composite_is_a_weighted_mean_that_stays_a_score() -> None:
    rng = random.Random(3)
    for _ in range(500):
        weights = {dimension: rng.uniform(1e-6, 10) for dimension in Dimension}
        scores = {dimension: rng.random() for dimension in Dimension}
        assert min(scores.values()) <= composite(scores, weights) <= max(scores.values())
        assert composite(scores, {k: v * 3 for k, v in weights.items()}) == pytest.approx(composite(scores, weights))
        assert composite(dict.fromkeys(Dimension, 1.0), weights) <= 1
    scores = {Dimension.ACCURACY: 1.0, Dimension.SAFETY: 0.0}
    assert composite(scores, {Dimension.ACCURACY: 3, Dimension.SAFETY: 1}) == 0.75
    assert composite(scores, {Dimension.SAFETY: 1}) == 0


class LikesTheFirst:
    """A judge that knows one dimension's worth of each word, and gives the first answer more."""

    def __init__(self, liking: float) -> None:
        self._liking = liking

    async def ask(self, request: JudgeRequest) -> JudgeReply:
        given = json.loads(request.user)
        worth = {"good": 0.75, "poor": 0.25}
        first, second = (worth[given[name]] for name in ("answer_1", "answer_2"))
        scores = {
            "answer_1": dict.fromkeys(Dimension, first + self._liking),
            "answer_2": dict.fromkeys(Dimension, second),
        }
        return JudgeReply(text=json.dumps(scores))


async def test_the_blinds_come_off_the_right_arm() -> None:
    judge = Judge(GATE, LikesTheFirst(0), seed=7)
    for number in range(20):
        found = await judge.judge(str(number), "what?", "good", "poor")
        assert not isinstance(found, NoScoreReason)
        assert [each.score for each in found] == [0.75, 0.25]


async def test_both_orders_together_cancel_a_liking_for_a_place() -> None:
    gate = GATE.model_copy(update={"control": JudgeControl(share=1.0)})
    found = await Judge(gate, LikesTheFirst(0.2), seed=7).judge("1", "what?", "good", "poor")
    assert not isinstance(found, NoScoreReason)
    assert [each.score for each in found] == [pytest.approx(0.85), pytest.approx(0.35)]


def test_equal_words_get_equal_scores() -> None:
    opinion = (dict.fromkeys(Dimension, 0.9), dict.fromkeys(Dimension, 0.5))
    same = settle(("yes", "yes"), [opinion], EVEN)
    assert same[0].score == same[1].score == pytest.approx(0.7)
    assert [each.score for each in settle(("yes", "no"), [opinion], EVEN)] == [0.9, 0.5]


@pytest.mark.parametrize(
    ("drop", "swapped", "same"),
    [
        (0, 0, True),
        (0.9 - 0.8, 0.0, True),
        (0.3, 0.9, True),
        (0.12, -0.12, False),
        (0.2, 0.0, False),
        (-0.2, -0.5, True),
    ],
)
def test_an_opinion_is_the_same_or_not(drop: float, swapped: float, same: bool) -> None:
    assert same_opinion(drop, swapped, within=0.1) is same
    assert same_opinion(swapped, drop, within=0.1) is same
    assert same_opinion(-drop, -swapped, within=0.1) is same


async def test_a_fair_judge_is_trusted_and_sees_a_drop() -> None:
    judge, found = await judged(FakeJudge(noise=0.05), stable=0.8, canary=0.7)
    assert mean_drop(found) == pytest.approx(0.1, abs=0.015)
    report = judge.control
    assert report.ok is True
    assert report.asked == 400 + report.repeats + report.foils
    assert report.repeats == pytest.approx(80, abs=25)
    assert "agrees with itself on" in report.reason


@pytest.mark.parametrize(
    ("place_bias", "noise", "trusted"),
    [
        (0, 0, True),
        long(0, 0.05, True),
        (0, 0.07, True),
        (0.05, 0.05, True),
        (0.1, 0.02, False),
        long(0.2, 0, False),
        (0, 0.2, False),
    ],
)
async def test_small_faults_are_forgiven_and_large_ones_are_not(place_bias: float, noise: float, trusted: bool) -> None:
    judge, _ = await judged(FakeJudge(place_bias=place_bias, noise=noise), stable=0.7, canary=0.7, pairs=500)
    assert judge.control.ok is trusted


async def test_a_judge_that_says_the_same_of_everything_is_not_trusted() -> None:
    judge, _ = await judged(FakeJudge(worth=lambda question, answer: 0.8), stable=0.9, canary=0.1)
    assert judge.control.self_agreement == 1
    assert judge.control.discrimination == 0
    assert judge.control.ok is False


async def test_a_judge_is_unknown_before_it_was_asked_enough() -> None:
    judge, found = await judged(FakeJudge(), pairs=20)
    assert not any(isinstance(pair, NoScoreReason) for pair in found)
    assert judge.control.ok is None
    assert "not yet known" in judge.control.reason
    assert Judge(GATE, FakeJudge(), seed=0).control.ok is None


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (lambda text: "no idea", NoScoreReason.UNPARSABLE),
        (lambda text: text.replace("0.8", "8"), NoScoreReason.OUT_OF_RANGE),
        (lambda text: "I'm sorry, but I can't help with that.", NoScoreReason.REFUSED),
    ],
)
async def test_a_judge_without_an_answer_gives_no_score_and_is_not_trusted(
    says: Callable[[str], str], why: NoScoreReason
) -> None:
    judge, found = await judged(FakeJudge(says=says), pairs=30)
    assert found == [why] * 30
    assert judge.control.silent == {why: 30}
    assert judge.control.ok is False


async def test_a_judge_that_leaves_out_what_it_does_not_like_is_not_trusted() -> None:
    def says(text: str) -> str:
        return "" if '"accuracy": 0.3' in text else text

    worths = random.Random(1)
    judge = Judge(GATE, FakeJudge(says=says), seed=1)
    for number in range(300):
        canary = an_answer(0.3 if worths.random() < 0.2 else 0.8, f"number{number}")
        await judge.judge(str(number), f"what is number{number}?", an_answer(0.8, f"number{number}"), canary)
    assert judge.control.ok is False
    assert "answers questions in" in judge.control.reason


async def test_the_order_of_arrival_changes_no_score() -> None:
    async def scores(numbers: list[int]) -> dict[int, Judged]:
        judge = Judge(GATE, FakeJudge(place_bias=0.2), seed=3)
        texts = {
            n: (f"what is number{n}?", an_answer(0.6, f"number{n}"), an_answer(0.5, f"number{n}")) for n in numbers
        }
        found = await asyncio.gather(*(judge.judge(str(n), *texts[n]) for n in numbers))
        return dict(zip(numbers, found, strict=True))

    numbers = list(range(60))
    shuffled = random.Random(0).sample(numbers, len(numbers))
    assert await scores(numbers) == await scores(shuffled)


async def test_what_a_judge_is_asked_names_no_arm_and_swaps_repeats() -> None:
    client = FakeJudge()
    await judged(client, stable=0.9, canary=0.2, pairs=50)
    materials = [json.loads(request.user) for request in client.requests]
    assert all(set(material) == {"question", "answer_1", "answer_2"} for material in materials)
    by_question: dict[str, list[tuple[str, str]]] = {}
    for material in materials:
        by_question.setdefault(material["question"], []).append((material["answer_1"], material["answer_2"]))
    for asked in by_question.values():
        if len(asked) > 1:
            assert asked[1] == asked[0][::-1]
    foils = [asked[2] for asked in by_question.values() if len(asked) > 2]
    assert foils
    assert all(len({answer.split(" worth ")[0] for answer in foil}) == 2 for foil in foils)


async def test_a_judge_that_answers_can_talk_to_is_not_trusted() -> None:
    def heeds(question: str, answer: str) -> float:
        return 1.0 if answer.startswith(PLEA) else worth_of(question, answer)

    gullible, _ = await judged(FakeJudge(worth=heeds), stable=0.8, canary=0.7, pairs=1000)
    report = gullible.control
    assert report.ok is False
    assert report.self_agreement == 1
    assert report.discrimination == pytest.approx(0.5, abs=0.1)
    assert "tells foils in" in report.reason


def test_every_second_foil_pleads_and_each_wrong_answer_has_its_turn() -> None:
    wrong = ["one", "two", "three"]
    made = [foil_of(wrong, place / 600) for place in range(600)]
    assert all(made.count(answer) == 100 for answer in wrong)
    assert all(made.count(f"{PLEA}\n\n{answer}") == 100 for answer in wrong)
    assert foil_of([], 0.3) is None


async def test_a_popular_prompt_does_not_use_up_the_foils() -> None:
    client = FakeJudge()
    judge = Judge(GATE, client, seed=1)
    await judge.judge("first", "what is rare?", an_answer(0.8, "rare"), an_answer(0.8, "rare"))
    for number in range(200):
        await judge.judge(str(number), "what is popular?", an_answer(0.8, "popular"), an_answer(0.7, "popular"))
    assert judge.control.foils > 20
    assert judge.control.discrimination == 1


async def of_single(client: JudgeClient, *, answers: int = 200) -> tuple[Judge, list[JudgedAnswer | NoScoreReason]]:
    """Let `client` judge so many answers, each alone."""
    judge = Judge(GATE, client, seed=7)
    found = []
    for number in range(answers):
        words = f"number{number}"
        scored = await judge.judge(str(number), f"what is {words}?", an_answer(0.8, words))
        found.append(scored if isinstance(scored, NoScoreReason) else scored[0])
    return judge, found


async def test_every_answer_has_its_score_and_a_good_judge_is_believed() -> None:
    judge, found = await of_single(FakeJudge())
    assert {each.score for each in found if isinstance(each, JudgedAnswer)} == {0.8}
    assert judge.control.ok is True, judge.control.reason
    assert (judge.control.self_agreement, judge.control.discrimination) == (1.0, 1.0)


async def test_a_judge_that_is_not_there_gives_no_score() -> None:
    class Gone:
        async def ask(self, request: JudgeRequest) -> JudgeReply:
            raise OutsideError("the judge at h is not there")

    judge, found = await of_single(Gone(), answers=30)
    assert found == [NoScoreReason.UNREACHABLE] * 30
    assert judge.control.ok is False and "not there" in judge.control.reason


async def test_it_does_not_learn_the_arm() -> None:
    client = FakeJudge()
    await of_single(client, answers=1)
    assert '"answer"' in client.requests[0].user and "answer_1" not in client.requests[0].system
    assert "stable" not in client.requests[0].system + client.requests[0].user


async def test_answers_of_the_canary_are_no_measure_of_the_judge() -> None:
    """A canary that answers nothing right would make its judge look bad."""
    judge = Judge(GATE, FakeJudge(), seed=7)
    for number in range(100):
        await judge.judge(str(number), f"what is number{number}?", "no idea worth 0.1", right=False)
    assert (judge.control.repeats, judge.control.foils) == (0, 0)
