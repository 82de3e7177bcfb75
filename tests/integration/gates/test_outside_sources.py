"""What commands and web services answer, by real processes and real requests."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from gates.adapters.outside.command import AskedCommand
from gates.adapters.outside.webhook import Webhook
from gates.analyses.outside.answer import AskedArm, Question, Reply, judge_answer
from gates.analyses.outside.spec import CommandGate, WebhookGate
from gates.errors import NotAnswered
from gates.model import GateOutcome

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
PAIRS = '{"pairs": [{"stable": {"score": 1}, "canary": {"score": 0.5}}]}'


async def asked(folder: Path, program: str, *, seconds: float = 60, **settings: Any) -> Reply:
    gate = CommandGate(run=(sys.executable, "-c", program), **settings)
    return await AskedCommand(gate, folder, ENVIRONMENT).ask(QUESTION, seconds=seconds)


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
        ("""print('asking'); print('{"outcome": "running"}')""", "running", ""),
        ("""print('{\\n "outcome": "pass"\\n}')""", "pass", ""),
        # Of two that differ the worse counts.
        ("""print('{"outcome": "pass"}'); raise SystemExit(1)""", "fail", "exit code 1"),
        ("""print('{"outcome": "fail", "reason": "no"}'); raise SystemExit(3)""", "fail", "no"),
        ("""print('{"outcome": "pass"}'); raise SystemExit(3)""", "inconclusive", "exit code 3"),
        (f"""print('{PAIRS}'); raise SystemExit(1)""", "fail", "exit code 1"),
    ],
)
async def test_a_verdict_of_a_command(tmp_path: Path, program: str, outcome: str, reason: str) -> None:
    answer = (await asked(tmp_path, program)).answer
    assert (answer.outcome, answer.reason) == (outcome, reason)


@pytest.mark.parametrize(
    ("program", "message", "again"),
    [
        ("raise SystemExit(4)", "something that it needs was not there", True),
        ("raise SystemExit(2)", "ended with code 2, which says nothing of the version", False),
        ("import os; os.kill(os.getpid(), 9)", "ended by SIGKILL, which says nothing of the version", False),
        ("""print('{"outcome": "pass"')""", "its answer cannot be read: it begins as JSON and is none", False),
        ("""print('{"outcome": "good"}')""", "outcome: Input should be 'pass', 'fail', 'running' or", False),
        ("""print('{"numbers": {"a": 1}}')""", "exactly one of outcome, pairs", False),
        ("""print('{"outcome": "pass", "because": 1}')""", "because: Extra inputs are not permitted", False),
        ("print('x' * (17 << 20))", "it says more than 16 MiB", False),
    ],
)
async def test_what_says_nothing_of_the_version(tmp_path: Path, program: str, message: str, again: bool) -> None:
    error = await unanswered(tmp_path, program)
    assert message in error.message
    assert error.again is again


async def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    gate = CommandGate(run=("no-such-program",))
    with pytest.raises(NotAnswered, match="no-such-program cannot be run: No such file or directory"):
        await AskedCommand(gate, tmp_path, ENVIRONMENT).ask(QUESTION, seconds=60)


async def test_it_gets_the_question_and_no_secret_that_was_not_named(tmp_path: Path) -> None:
    (tmp_path / "here.txt").write_text("in the spec's folder")
    program = (
        "import json, os, sys; q = json.load(sys.stdin); "
        "print(json.dumps({'outcome': 'pass', 'reason': ' '.join([q['canary']['url'], open('here.txt').read(), "
        "os.environ['TIDEGATE_CANARY_URL'], os.environ['TIDEGATE_MODEL'], str(sorted(os.environ))])}))"
    )
    reason = (await asked(tmp_path, program)).answer.reason
    assert reason.startswith("http://127.0.0.1:2 in the spec's folder http://127.0.0.1:2 tiny ")
    assert "AWS_SECRET_ACCESS_KEY" not in reason and "TIDEGATE_SPEC_TEAM_KEY" not in reason


async def test_a_named_secret_is_in_no_answer_error_or_kept_output(tmp_path: Path) -> None:
    program = "import os, sys; print('key is ' + os.environ['TIDEGATE_SPEC_TEAM_KEY'], file=sys.stderr); sys.exit({})"
    said = await asked(tmp_path, program.format(1), variables=("TIDEGATE_SPEC_TEAM_KEY",))
    assert said.answer.reason == "exit code 1: key is ***"
    assert "key is ***" in said.output and "s3cret-key" not in said.output
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
    deadline = time.monotonic() + 120
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the child of the command lives"
        await asyncio.sleep(0.1)


async def test_scores_are_judged_as_those_of_a_golden_set(tmp_path: Path) -> None:
    def program(canary: float) -> str:
        pair = {"stable": {"score": 1}, "canary": {"score": canary}}
        return f"import json; print(json.dumps({{'pairs': [{pair!r}] * 40}}))"

    gate = CommandGate(run=("python",), max_drop=0.1, min_pairs=40)
    outcomes = [
        judge_answer("safety", gate, (await asked(tmp_path, program(score))).answer, rollback=0.0005).outcome
        for score in (1, 0.95, 0)
    ]
    assert outcomes == [GateOutcome.PASS, GateOutcome.PASS, GateOutcome.FAIL]
    few = judge_answer("safety", gate, (await asked(tmp_path, f"print('{PAIRS}')")).answer, rollback=0.0005)
    assert few.outcome is GateOutcome.INCONCLUSIVE


Handler = Callable[[httpx.Request], httpx.Response]


async def told(handler: Handler, **settings: Any) -> Reply:
    gate = WebhookGate(url="https://judge.example/v1?team=search", secret_env="TIDEGATE_SPEC_TEAM_KEY", **settings)
    return await Webhook(gate, ENVIRONMENT, transport=httpx.MockTransport(handler)).ask(QUESTION, seconds=60)


async def test_a_service_gets_the_question_and_the_secret_in_its_header() -> None:
    seen: list[httpx.Request] = []

    def answers(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"outcome": "pass", "reason": "key s3cret-key is fine", "numbers": {"n": 3}})

    reply = await told(answers, header="X-Team")
    assert (reply.answer.outcome, reply.answer.reason, reply.answer.numbers) == ("pass", "key *** is fine", {"n": 3.0})
    assert "s3cret-key" not in reply.output
    (request,) = seen
    assert (request.method, str(request.url)) == ("POST", "https://judge.example/v1?team=search")
    assert request.headers["X-Team"] == "s3cret-key"
    assert Question.model_validate_json(request.content) == QUESTION


@pytest.mark.parametrize(
    ("response", "message", "again"),
    [
        (httpx.Response(503), "it answers 503, which says nothing of the version", True),
        (httpx.Response(429), "it answers 429, which says nothing of the version", True),
        (httpx.Response(404), "it answers 404, which says nothing of the version", False),
        (httpx.Response(307, headers={"location": "http://169.254.169.254/"}), "it answers 307", False),
        (httpx.Response(200, text="fine"), "its answer cannot be read", False),
        (httpx.Response(200, json=["pass"]), "its answer cannot be read", False),
        (httpx.Response(200, content=b"x" * (17 << 20)), "it says more than 16 MiB", False),
    ],
)
async def test_what_a_service_says_of_no_version(response: httpx.Response, message: str, again: bool) -> None:
    asked: list[str] = []

    def answers(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        return response

    with pytest.raises(NotAnswered) as caught:
        await told(answers)
    assert message in caught.value.message
    assert caught.value.again is again
    assert asked == ["judge.example"]


async def test_a_service_that_is_not_there_may_be_asked_again() -> None:
    gate = WebhookGate(url="http://127.0.0.1:9/")
    with pytest.raises(NotAnswered, match=r"127.0.0.1:9 was not reached \(ConnectError\)") as caught:
        await Webhook(gate, ENVIRONMENT).ask(QUESTION, seconds=60)
    assert caught.value.again


async def test_a_secret_that_is_not_there_is_named_and_nobody_is_asked() -> None:
    gate = WebhookGate(url="http://127.0.0.1:9/", secret_env="TIDEGATE_SPEC_OTHER")
    with pytest.raises(
        NotAnswered, match="the variable TIDEGATE_SPEC_OTHER is empty or has characters that a header cannot have"
    ):
        await Webhook(gate, ENVIRONMENT).ask(QUESTION, seconds=60)
