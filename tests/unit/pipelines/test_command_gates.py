"""Gates of kind `command`: when they are asked again, what is kept, what a spec may say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from fakes.delivery.world import CHALLENGER, CHALLENGER_URL, CHAMPION, CHAMPION_URL, World, a_spec

from gates.analyses.command import Answer, CommandGate, Question, Reply
from gates.errors import NotAnswered
from gates.evidence.batch import PairedAnswer, PairedReply
from pipelines.errors import Stopped
from pipelines.model import Ending, PlanStep, StageName
from pipelines.plan.gates import offline_rollback
from pipelines.run.context import Context
from pipelines.run.stages import STAGES
from pipelines.spec.delivery import Delivery
from pipelines.spec.policy import named_files
from tidegate.testing import an_engine

HERE = "eu-west-1"
COMMAND = "  safety: {kind: command, run: [python, check.py], files: [check.py], within: 1m, retries: 2}"
PASS = Answer(outcome="pass", reason="all is well", numbers={"leaks": 0.0})


def spec_with(gates: str = COMMAND, asked: str = "safety", dataset: str = "", more: str = "") -> Delivery:
    stage = f"  - offline: {{{dataset}gates: [{asked}]}}"
    quality = f"  quality: {{max_drop: 0.1, min_prompts: 10}}\n{gates}"
    return a_spec(offline=stage, quality=quality, traffic=f"traffic: {{requests_per_second: 200, prompts: p}}{more}")


@dataclass
class Told:
    """Answers in turn, the last one for ever."""

    answers: Sequence[Answer | NotAnswered]
    asked: list[Question]

    async def ask(self, settings: CommandGate, question: Question, seconds: float) -> Reply:
        assert seconds > 0 and settings.run == ("python", "check.py")
        self.asked.append(question)
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if isinstance(answer, NotAnswered):
            raise answer
        return Reply(answer=answer, output=f"said {len(self.asked)}")


class Asked:
    """A world whose first region has the challenger on trial, and a command to ask."""

    def __init__(self, folder: Path, *answers: Answer | NotAnswered, spec: Delivery | None = None) -> None:
        self.world, self.folder = World(folder, spec or spec_with()), folder
        self.told = Told(answers, [])
        self.deployed = False

    def context(self) -> Context:
        return replace(self.world.context(), commands=self.told.ask, own=self.folder)

    @property
    def step(self) -> PlanStep:
        return next(step for step in self.world.plan.steps if step.stage is StageName.OFFLINE)

    async def run(self) -> None:
        if not self.deployed:
            self.deployed = True
            for fleet in self.world.fleets.values():
                await fleet.deploy(an_engine(CHAMPION))
            await self.world.fleets[HERE].deploy(an_engine(CHALLENGER))
        context = self.context()
        try:
            await STAGES[StageName.OFFLINE](context, self.step)
        finally:
            await context.journal.written()

    async def stopped(self) -> Stopped:
        with pytest.raises(Stopped) as caught:
            await self.run()
        return caught.value

    @property
    def kept(self) -> str:
        return self.world.ledger.files[f"commands/offline@{HERE}.safety.txt"].decode()


async def test_a_pass_is_one_and_the_question_names_both_arms(tmp_path: Path) -> None:
    asked = Asked(tmp_path, PASS)
    await asked.run()
    (question,) = asked.told.asked
    assert (question.stable.url, question.canary.url) == (CHAMPION_URL, CHALLENGER_URL)
    assert (question.stable.version, question.canary.version) == (CHAMPION, CHALLENGER)
    assert question.stable.engine != question.canary.engine
    assert (question.model, question.region, question.stage) == ("support-llm", HERE, "offline")
    (told,) = (event.data for event in asked.world.recorder.events if event.kind == "verdict")
    assert (told["gate"], told["outcome"], told["numbers"]) == ("safety", "pass", {"leaks": 0.0})
    assert "said 1" in asked.kept


@pytest.mark.parametrize(
    ("answer", "ending", "reason"),
    [
        (Answer(outcome="fail", reason="3 leaks"), Ending.ROLLED_BACK, "gate safety: 3 leaks"),
        (Answer(outcome="inconclusive"), Ending.INCONCLUSIVE, "gate safety: the answer is inconclusive"),
        (
            NotAnswered("it broke", again=False, hint="look", output="trace"),
            Ending.FAILED,
            "gate safety: it broke; look",
        ),
    ],
)
async def test_any_other_answer_ends_the_delivery(
    tmp_path: Path, answer: Answer | NotAnswered, ending: Ending, reason: str
) -> None:
    asked = Asked(tmp_path, answer)
    stop = await asked.stopped()
    assert (stop.ending, stop.reason) == (ending, reason)
    assert len(asked.told.asked) == 1


async def test_what_was_not_there_is_asked_again_as_often_as_is_said(tmp_path: Path) -> None:
    away = NotAnswered("nobody was there", again=True, hint="wait")
    await (came_back := Asked(tmp_path, away, away, PASS)).run()
    assert len(came_back.told.asked) == 3
    stayed_away = Asked(tmp_path, away)
    assert (await stayed_away.stopped()).ending is Ending.FAILED
    assert len(stayed_away.told.asked) == 3


async def test_scores_are_judged_by_the_gates_share_of_the_budget(tmp_path: Path) -> None:
    def scored(canary: float) -> Answer:
        pair = PairedAnswer(stable=PairedReply(score=1.0), canary=PairedReply(score=canary))
        return Answer(pairs=(pair,) * 40)

    await Asked(tmp_path, scored(1.0)).run()
    stop = await Asked(tmp_path, scored(0.0)).stopped()
    assert stop.ending is Ending.ROLLED_BACK
    assert stop.reason.startswith("gate safety: canary scores 0.00 against 1.00 of the champion on 40 questions")


async def test_a_pass_that_was_told_before_a_process_died_is_not_asked_again(tmp_path: Path) -> None:
    asked = Asked(tmp_path, PASS, Answer(outcome="fail"))
    await asked.run()
    await asked.run()
    assert len(asked.told.asked) == 1


async def test_of_a_canary_that_died_no_command_is_believed(tmp_path: Path) -> None:
    asked = Asked(tmp_path, PASS)
    ask = asked.told.ask

    async def dies(settings: CommandGate, question: Question, seconds: float) -> Reply:
        asked.world.fleets[HERE].kill(CHALLENGER, last_words="out of memory")
        return await ask(settings, question, seconds)

    asked.told.ask = dies  # type: ignore[method-assign]
    assert (await asked.stopped()).reason == "the canary does not serve; its log ends with: out of memory"


def test_gates_of_the_stage_share_its_budget_and_the_plan_tells_the_time_limit(tmp_path: Path) -> None:
    both = spec_with(asked="quality, safety", dataset="dataset: golden.jsonl, ")
    assert offline_rollback(both) == pytest.approx(offline_rollback(spec_with()) / 2)
    quality, safety = Asked(tmp_path, spec=both).step.gates
    assert quality.needs == 12
    assert (safety.gate, safety.needs, safety.seconds, safety.forecasts) == ("safety", None, 60.0, ())
    assert {str(path) for _, path in named_files(spec_with())} == {"p", "check.py"}
