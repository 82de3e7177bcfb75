"""A judge of single answers: what it scores, and what it must show before it is believed."""

from __future__ import annotations

from fakes.services.chat_servers import FakeJudge, an_answer

from gates.evidence.batch import Dimension
from gates.judge.judge import Judge, JudgedAnswer
from gates.judge.rubric import JudgeClient, JudgeReply, JudgeRequest, NoScoreReason
from gates.judge.spec import JudgeGate
from tidegate.core.errors import OutsideError

GATE = JudgeGate(endpoint="http://127.0.0.1:9/v1", model="judge")


async def judged(
    client: JudgeClient, *, answers: int = 200, worth: float = 0.8, gate: JudgeGate = GATE
) -> tuple[Judge, list[JudgedAnswer | NoScoreReason]]:
    judge = Judge(gate, client, seed=7)
    found = []
    for number in range(answers):
        words = f"number{number}"
        scored = await judge.judge(str(number), f"what is {words}?", an_answer(worth, words))
        found.append(scored if isinstance(scored, NoScoreReason) else scored[0])
    return judge, found


async def test_every_answer_has_its_score_and_a_good_judge_is_believed() -> None:
    judge, found = await judged(FakeJudge())
    assert {each.score for each in found if isinstance(each, JudgedAnswer)} == {0.8}
    assert judge.control.ok is True, judge.control.reason
    assert (judge.control.self_agreement, judge.control.discrimination) == (1.0, 1.0)


async def test_a_judge_that_is_not_there_gives_no_score() -> None:
    class Gone:
        async def ask(self, request: JudgeRequest) -> JudgeReply:
            raise OutsideError("the judge at h is not there")

    judge, found = await judged(Gone(), answers=30)
    assert found == [NoScoreReason.UNREACHABLE] * 30
    assert judge.control.ok is False and "not there" in judge.control.reason


async def test_it_does_not_learn_the_arm() -> None:
    client = FakeJudge()
    await judged(client, answers=1)
    assert '"answer"' in client.requests[0].user and "answer_1" not in client.requests[0].system
    assert "stable" not in client.requests[0].system + client.requests[0].user


async def test_answers_of_the_canary_are_no_measure_of_the_judge() -> None:
    """A canary that answers nothing right would make its judge look bad."""
    judge = Judge(GATE, FakeJudge(), seed=7)
    for number in range(100):
        await judge.judge(str(number), f"what is number{number}?", "no idea worth 0.1", right=False)
    assert (judge.control.repeats, judge.control.foils) == (0, 0)


async def test_only_the_dimensions_of_the_spec_are_asked() -> None:
    gate = GATE.model_copy(update={"dimensions": {Dimension.ACCURACY: 1.0}})
    _, found = await judged(FakeJudge(), answers=1, gate=gate)
    assert isinstance(found[0], JudgedAnswer) and list(found[0].dimensions) == [Dimension.ACCURACY]
