"""What commands answer, by real processes."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from fakes.waiting import until

from gates.adapters.command import ask_command
from gates.analyses.command import Answer, AskedArm, CommandGate, Question, Reply
from gates.errors import NotAnswered
from gates.model import GateOutcome

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples/gates/lm-eval/check.py"
SAMPLES = ROOT / "tests/golden/lm_eval/samples_choices_2026-11-27T02-22-14.728944.jsonl"
QUESTION = Question(
    gate="safety",
    delivery="d1",
    stage="offline",
    region="eu-west-1",
    model="tiny",
    stable=AskedArm(version="1", url="http://127.0.0.1:1", engine="a"),
    canary=AskedArm(version="2", url="http://127.0.0.1:2", engine="b"),
)
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "AWS_SECRET_ACCESS_KEY": "never-told",
    "TIDEGATE_SPEC_TEAM_KEY": "s3cret-key",
}


async def asked(folder: Path, program: str, *, seconds: float = 60, **settings: Any) -> Reply:
    gate = CommandGate(run=(sys.executable, "-c", program), **settings)
    return await ask_command(gate, QUESTION, seconds=seconds, folder=folder, environment=ENVIRONMENT)


async def unanswered(folder: Path, program: str, **settings: Any) -> NotAnswered:
    with pytest.raises(NotAnswered) as caught:
        await asked(folder, program, **settings)
    return caught.value


@pytest.mark.parametrize(
    ("program", "outcome", "reason"),
    [
        ("pass", "pass", "exit code 0"),
        ("import sys; sys.exit('five answers leak')", "fail", "exit code 1: five answers leak"),
        ("raise SystemExit(3)", "inconclusive", "exit code 3"),
        ("""print('{"outcome": "fail", "reason": "two\\\\nlines"}')""", "fail", "two lines"),
        ("""print('asking'); print('{"outcome": "pass"}')""", "pass", ""),
        # Of two that differ the worse counts.
        ("""print('{"outcome": "pass"}'); raise SystemExit(1)""", "fail", "exit code 1"),
        ("""print('{"outcome": "fail", "reason": "no"}'); raise SystemExit(3)""", "fail", "no"),
        ("""print('{"outcome": "pass"}'); raise SystemExit(3)""", "inconclusive", "exit code 3"),
    ],
)
async def test_a_verdict_of_a_command(tmp_path: Path, program: str, outcome: str, reason: str) -> None:
    answer = (await asked(tmp_path, program)).answer
    assert (str(answer.outcome), answer.reason) == (outcome, reason)


@pytest.mark.parametrize(
    ("program", "message", "again"),
    [
        ("raise SystemExit(4)", "something that it needs was not there", True),
        ("raise SystemExit(2)", "ended with code 2, which says nothing of the version", False),
        ("import os; os.kill(os.getpid(), 9)", "ended by SIGKILL, which says nothing of the version", False),
        ("""print('{"outcome": "pass"')""", "its answer cannot be read: Invalid JSON", False),
        ("""print('{"outcome": "good"}')""", "outcome: Value error, found 'good'; expected one of pass, ", False),
        ("""print('{"outcome": "error"}')""", "outcome: Value error, pass, fail or inconclusive", False),
        ("""print('{"numbers": {"a": 1}}')""", "outcome: Field required", False),
        (
            """print('{"outcome": "fail", "reason": "' + 70_000 * 'x' + '"}')""",
            "its last line has more than 64 KiB",
            False,
        ),
        ("""print('{"outcome": "pass", "because": 1}')""", "because: Extra inputs are not permitted", False),
    ],
)
async def test_what_says_nothing_of_the_version(tmp_path: Path, program: str, message: str, again: bool) -> None:
    error = await unanswered(tmp_path, program)
    assert message in error.message
    assert error.again is again


async def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    gate = CommandGate(run=("no-such-program",))
    with pytest.raises(NotAnswered, match="no-such-program cannot be run: No such file or directory"):
        await ask_command(gate, QUESTION, seconds=60, folder=tmp_path, environment=ENVIRONMENT)


async def test_it_gets_the_question_and_no_secret_that_was_not_named(tmp_path: Path) -> None:
    (tmp_path / "here.txt").write_text("in the spec's folder")
    program = (
        "import json, os; "
        "print(json.dumps({'outcome': 'pass', 'reason': ' '.join([open('here.txt').read(), "
        "os.environ['TIDEGATE_CANARY_URL'], os.environ['TIDEGATE_MODEL'], str(sorted(os.environ))])}))"
    )
    reason = (await asked(tmp_path, program)).answer.reason
    assert reason.startswith("in the spec's folder http://127.0.0.1:2 tiny ")
    assert "AWS_SECRET_ACCESS_KEY" not in reason and "TIDEGATE_SPEC_TEAM_KEY" not in reason


async def test_a_named_secret_is_in_no_answer_error_or_kept_output(tmp_path: Path) -> None:
    program = "import os, sys; print('key is ' + os.environ['TIDEGATE_SPEC_TEAM_KEY'], file=sys.stderr); sys.exit({})"
    said = await asked(tmp_path, program.format(1), variables=("TIDEGATE_SPEC_TEAM_KEY",))
    assert said.answer.reason == "exit code 1: key is ***"
    assert "key is ***" in said.output and "s3cret-key" not in said.output
    # What is kept begins in the middle of it.
    long = "import os; print(os.environ['TIDEGATE_SPEC_TEAM_KEY'] + 32_765 * '\\n.')"
    assert "key" not in (await asked(tmp_path, long, variables=("TIDEGATE_SPEC_TEAM_KEY",))).output
    error = await unanswered(tmp_path, program.format(2), variables=("TIDEGATE_SPEC_TEAM_KEY",))
    assert "s3cret-key" not in error.message + error.output
    missing = await unanswered(tmp_path, "pass", variables=("TIDEGATE_SPEC_OTHER",))
    assert missing.message == "the variable TIDEGATE_SPEC_OTHER is not set"


async def test_one_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    program = (
        "import pathlib, subprocess, sys, time; "
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
        "pathlib.Path('new').write_text(str(child.pid)); pathlib.Path('new').rename('child'); time.sleep(600)"
    )
    seconds, begun = 1, tmp_path / "child"
    while not begun.exists():
        error = await unanswered(tmp_path, program, seconds=seconds)
        assert error.message == f"no answer within {seconds} s"
        # On a busy machine it may have got too little time to begin its child.
        seconds *= 4
    child = int(begun.read_text())
    until(
        "the child has ended",
        lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE,
    )


HARNESS = """
import pathlib, shutil, sys

words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
folder = pathlib.Path(sys.argv[-1], "tiny")
folder.mkdir()
text = pathlib.Path("samples.jsonl").read_text()
# The canary has the port 2.
worse = "127.0.0.1:2/v1/completions" in words["--model_args"] and pathlib.Path("worse").exists()
(folder / "samples_choices_T.jsonl").write_text(text.replace('"acc": 1.0', '"acc": 0.0') if worse else text)
print("|choices|acc|")
"""
"""Called as `lm_eval`; writes what it wrote of a real model."""


async def test_a_task_of_a_harness_by_the_example(tmp_path: Path) -> None:
    (tmp_path / "lm_eval.py").write_text(HARNESS)
    shutil.copy(SAMPLES, tmp_path / "samples.jsonl")
    shutil.copy(EXAMPLE, tmp_path / "check.py")
    run = (sys.executable, "check.py", "0.1", "choices", "acc", "tokenizer=m0", "--limit", "3")
    gate = CommandGate(run=run, files=(Path("check.py"),))
    environment = {**ENVIRONMENT, "PYTHONPATH": str(tmp_path)}

    async def judged() -> Answer:
        reply = await ask_command(gate, QUESTION, seconds=60, folder=tmp_path, environment=environment)
        assert "|choices|acc|" in reply.output
        return reply.answer

    alike = await judged()
    assert alike.outcome is GateOutcome.PASS and "over 3 questions" in alike.reason
    (tmp_path / "worse").touch()
    worse = await judged()
    assert (worse.outcome, worse.numbers["canary_mean"]) == (GateOutcome.FAIL, 0)
    (tmp_path / "samples.jsonl").write_text("{}")
    with pytest.raises(NotAnswered, match="ended with code 2, which says nothing of the version: the harness cannot"):
        await judged()
