"""A task of a harness on both arms: real processes that ask real servers, and what is kept for the next delivery."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fakes import harness_program
from fakes.services.http import QuietHandler, answering

from gates.adapters.outside.harness import AskedHarness
from gates.adapters.outside.kept_evaluations import KeptEvaluations
from gates.analyses.outside.answer import AskedArm, Question, Reply, judge_answer
from gates.analyses.outside.evaluation_spec import EvalGate
from gates.errors import NotAnswered
from gates.model import GateOutcome

pytestmark = pytest.mark.long

PROMPTS = [f"How much is {number} and {number + 1}?" for number in range(1, 41)]
ROLLBACK = 0.0005


@contextmanager
def engine(wrong: int = 0) -> Iterator[str]:
    """Answers every prompt with itself in upper case, so many of them wrongly; gives its address."""

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            prompt = said["messages"][0]["content"]
            answer = "?" if prompt in PROMPTS[:wrong] else prompt.upper()
            self.answer(json.dumps({"choices": [{"message": {"content": answer}}]}))

    with answering(Handler) as address:
        yield f"http://{address}"


class Asked:
    """A spec's folder with a task, and a folder of evaluations."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.kept = folder / "spec", folder / "evaluations"
        (self.folder / "tasks").mkdir(parents=True)
        self.write_task(PROMPTS)

    def write_task(self, prompts: list[str]) -> None:
        lines = (json.dumps({"prompt": prompt, "expected": prompt.upper()}) for prompt in prompts)
        (self.folder / "tasks/sums.jsonl").write_text("\n".join(lines) + "\n")

    def gate(self, **changes: Any) -> EvalGate:
        said = {
            "task": "sums",
            "run": [sys.executable, harness_program.__file__],
            "api": "chat",
            "arguments": ["--include_path", "tasks"],
            "files": ["tasks/sums.jsonl"],
            "max_drop": 0.1,
        }
        return EvalGate.model_validate(said | changes)

    async def ask(self, stable: str, canary: str, *, version: str = "2", seconds: float = 120, **changes: Any) -> Reply:
        question = Question(
            gate="sums",
            delivery="d1",
            stage="offline",
            region="eu-west-1",
            model="tiny",
            stable=AskedArm(version="1", url=stable, engine="a" * 64),
            canary=AskedArm(version=version, url=canary, engine=version * 64),
        )
        environment = {"PATH": os.environ["PATH"], "AWS_SECRET_ACCESS_KEY": "never-told"}
        source = AskedHarness(self.gate(**changes), self.folder, environment, KeptEvaluations(self.kept))
        return await source.ask(question, seconds=seconds)

    def outcome(self, reply: Reply) -> GateOutcome:
        return judge_answer("sums", self.gate(), reply.answer, rollback=ROLLBACK).outcome

    @property
    def runs(self) -> list[str]:
        """Who was asked, run by run."""
        return [line.split()[1].removesuffix("/v1/chat/completions") for line in self._log()]

    def _log(self) -> list[str]:
        path = self.folder / "asked.txt"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    return Asked(tmp_path)


async def test_a_worse_version_fails_and_an_equal_one_passes_without_asking_the_champion_again(asked: Asked) -> None:
    with engine() as champion, engine(wrong=20) as worse, engine() as equal:
        found = await asked.ask(champion, worse, version="2")
        assert asked.outcome(found) is GateOutcome.FAIL
        assert len(found.answer.pairs) == 40
        assert "stable, version 1: exit code 0" in found.output and "|sums|exact_match|0.5000|" in found.output
        again = await asked.ask(champion, equal, version="3")
        assert asked.outcome(again) is GateOutcome.PASS
        assert "stable, version 1: 40 questions, as it answered them before" in again.output
        assert asked.runs == [champion, worse, equal]


async def test_the_same_version_again_is_not_asked_and_gets_the_same_verdict(asked: Asked) -> None:
    with engine() as champion, engine(wrong=3) as canary:
        first = await asked.ask(champion, canary)
        second = await asked.ask(champion, canary)
        assert first.answer == second.answer
        assert asked.runs == [champion, canary]


@pytest.mark.parametrize("damage", ["cut", "empty", "changed", "none of ours"])
async def test_what_is_kept_and_not_whole_is_asked_again(asked: Asked, damage: str) -> None:
    with engine() as champion, engine() as canary:
        first = await asked.ask(champion, canary)
        for path in asked.kept.iterdir():
            text = path.read_text()
            changed = text.replace('"score":1.0', '"score":0.0', 1)
            assert changed != text
            path.write_text({"cut": text[:-80], "empty": "", "changed": changed, "none of ours": "{}"}[damage])
        second = await asked.ask(champion, canary)
        assert asked.runs == [champion, canary, champion, canary]
        assert first.answer == second.answer


async def test_other_questions_are_asked_of_both_arms(asked: Asked) -> None:
    with engine() as champion, engine() as canary:
        await asked.ask(champion, canary)
        await asked.ask(champion, canary, limit=30)
        asked.write_task(PROMPTS[:35])
        found = await asked.ask(champion, canary)
        assert asked.runs == [champion, canary] * 3
        assert len(found.answer.pairs) == 35


async def test_questions_that_changed_behind_a_task_are_asked_of_the_champion_too(asked: Asked) -> None:
    """Of data that no file of the spec names, such as a hub's."""
    with engine() as champion, engine() as canary, engine() as other:
        await asked.ask(champion, canary, files=[])
        asked.write_task([*PROMPTS[:-1], "And now?"])
        found = await asked.ask(champion, other, version="3", files=[])
        assert asked.runs == [champion, canary, other, champion]
        assert asked.outcome(found) is GateOutcome.PASS


async def test_a_run_that_ended_early_leaves_nothing_behind_and_what_was_whole_stays(asked: Asked) -> None:
    with engine() as champion, engine() as canary:
        with pytest.raises(
            NotAnswered, match="asking canary ended with code 1, which says nothing of the version"
        ) as no:
            await asked.ask(champion, "http://127.0.0.1:9")
        assert not no.value.again
        assert "Connection refused" in no.value.message
        await asked.ask(champion, canary)
        assert asked.runs == [champion, "http://127.0.0.1:9", canary]


@pytest.mark.parametrize(
    ("program", "seconds", "message", "again"),
    [
        ("raise SystemExit(4)", 60, "something that it needs of stable was not there", True),
        ("raise SystemExit(3)", 60, "asking stable ended with code 3", False),
        ("pass", 60, "what it found of stable cannot be read: it wrote no results_TIME.json; expected one", False),
        ("import time; time.sleep(600)", 1, "no answer within 1 s", False),
    ],
)
async def test_what_says_nothing_of_the_version(
    asked: Asked, program: str, seconds: float, message: str, again: bool
) -> None:
    with pytest.raises(NotAnswered) as caught:
        await asked.ask(
            "http://127.0.0.1:9", "http://127.0.0.1:9", seconds=seconds, run=[sys.executable, "-c", program]
        )
    assert message in caught.value.message
    assert caught.value.again is again
    assert not asked.kept.exists()


async def test_a_file_that_the_gate_names_and_is_not_there_is_named(asked: Asked) -> None:
    with pytest.raises(NotAnswered, match=r"gone.yaml of `files`: no such file or directory"):
        await asked.ask("http://127.0.0.1:9", "http://127.0.0.1:9", files=["gone.yaml"])
