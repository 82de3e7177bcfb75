"""`OpenAIJudge` and `Judge` against a small server that speaks the wire format."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import pytest
from fakes.services.chat_servers import JudgeFault, OpenAIServer, an_answer, completion, openai_server
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gates.adapters.judge import OpenAIJudge
from gates.evidence.batch import Dimension
from gates.judge.judge import Judge, JudgedAnswer
from gates.judge.rubric import JudgeReply, NoScoreReason, judge_request, scores_in
from gates.judge.spec import JudgeGate
from tidegate.core.errors import OutsideError, UsageError

SECRET = "sk-very-secret"
REQUEST = judge_request(tuple(Dimension), "private question number1", (an_answer(0.8, "number1"), "hidden worth 0.4"))


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with openai_server() as state:
        yield state


def gate(server: OpenAIServer, **changes: Any) -> JudgeGate:
    return JudgeGate(endpoint=f"{server.url}/v1", model="judge-1", **changes)


def judge_of(settings: JudgeGate, environment: dict[str, str] | None = None) -> OpenAIJudge:
    return OpenAIJudge(settings, environment or {})


async def ask(settings: JudgeGate, environment: dict[str, str] | None = None) -> JudgeReply:
    async with aclosing(judge_of(settings, environment)) as judge:
        return await judge.ask(REQUEST)


def refuse(status: int, **headers: str) -> JudgeFault:
    """Answer so, and repeat what was sent, as some endpoints do."""

    def fault(request: Request, body: dict[str, object]) -> Response:
        said = f"{request.headers.get('authorization')} {body}"
        return JSONResponse(
            {"error": {"message": said}}, status, {name.replace("_", "-"): v for name, v in headers.items()}
        )

    return fault


async def test_a_judge_is_asked_as_its_endpoint_wants_it(server: OpenAIServer) -> None:
    settings = gate(server, api_key_env="JUDGE_KEY", parameters={"max_completion_tokens": 99})
    found = scores_in(await ask(settings, {"JUDGE_KEY": f" {SECRET}\n"}), tuple(Dimension), answers=2)
    assert not isinstance(found, NoScoreReason)
    assert found[0][Dimension.SAFETY] == 0.8
    assert set(server.bodies[0]) == {"model", "messages", "max_completion_tokens"}
    assert server.headers[0]["authorization"] == f"Bearer {SECRET}"


async def test_without_a_key_none_is_sent_and_the_form_can_be_enforced(server: OpenAIServer) -> None:
    await ask(gate(server, parameters={"response_format": {"type": "json_object"}}))
    assert "authorization" not in server.headers[0]
    assert server.bodies[0]["response_format"] == {"type": "json_object"}


def test_a_missing_key_is_told_before_anything_is_asked() -> None:
    settings = JudgeGate(endpoint="http://127.0.0.1:9/v1", model="m", api_key_env="JUDGE_KEY")
    for environment in ({}, {"JUDGE_KEY": " "}):
        with pytest.raises(UsageError, match="key is missing"):
            judge_of(settings, environment)


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_busy_judge_is_asked_again_when_it_says(server: OpenAIServer, status: int) -> None:
    server.faults = [refuse(status, retry_after_ms="20"), refuse(status, retry_after_ms="20")]
    # The client's own loading takes seconds on a busy machine.
    async with aclosing(judge_of(gate(server))) as judge:
        begin = time.perf_counter()
        assert (await judge.ask(REQUEST)).text
        assert time.perf_counter() - begin < 2
    assert len(server.bodies) == 3


async def test_a_silent_judge_is_asked_again(server: OpenAIServer) -> None:
    server.seconds = 0.5
    with pytest.raises(OutsideError, match="took too long"):
        await ask(gate(server, timeout=timedelta(seconds=0.1), retries=1))
    assert len(server.bodies) == 2


@pytest.mark.parametrize(("status", "asked"), [(400, 1), (401, 1), (404, 1), (429, 2), (500, 2)])
async def test_errors_and_logs_hold_neither_key_nor_words(
    server: OpenAIServer, caplog: pytest.LogCaptureFixture, status: int, asked: int
) -> None:
    caplog.set_level(logging.DEBUG)
    server.faults = [refuse(status, retry_after_ms="1")] * 3
    with pytest.raises(OutsideError, match=f"refused with {status}") as caught:
        await ask(gate(server, api_key_env="JUDGE_KEY", retries=1), {"JUDGE_KEY": SECRET})
    assert len(server.bodies) == asked
    error = caught.value
    assert error.__cause__ is None
    assert error.__suppress_context__
    said = f"{error!r} {error} {error.detail} {caplog.text}"
    assert not [word for word in (SECRET, "private question", "hidden", "number1") if word in said]


async def test_a_judge_that_is_not_there_is_named() -> None:
    settings = JudgeGate(endpoint="http://127.0.0.1:9/v1", model="m", retries=0)
    with pytest.raises(OutsideError, match=r"judge at 127.0.0.1:9 does not answer"):
        await ask(settings)


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (completion(None, refusal="no"), NoScoreReason.REFUSED),
        (completion("", finish_reason="content_filter"), NoScoreReason.REFUSED),
        (completion('{"answer_1": {"helpf', finish_reason="length"), NoScoreReason.UNPARSABLE),
        (JSONResponse({"choices": []}), NoScoreReason.UNPARSABLE),
        (JSONResponse(["surprise"]), NoScoreReason.UNPARSABLE),
        (Response("<html>welcome</html>", media_type="text/html"), NoScoreReason.UNPARSABLE),
        (Response('{"choices": [', media_type="application/json"), NoScoreReason.UNPARSABLE),
    ],
)
async def test_an_answer_without_scores_is_a_typed_non_answer(
    server: OpenAIServer, response: Response, why: NoScoreReason
) -> None:
    server.faults = [lambda request, body: response]
    assert scores_in(await ask(gate(server)), tuple(Dimension), answers=2) is why


async def judged(settings: JudgeGate, pairs: int) -> tuple[Judge, list[tuple[JudgedAnswer, ...] | NoScoreReason]]:
    async with aclosing(judge_of(settings)) as client:
        judge = Judge(settings, client, seed=5)
        texts = [
            (f"what is {words}?", an_answer(0.8, words), an_answer(0.65, words))
            for words in map("n{}".format, range(pairs))
        ]
        found = await asyncio.gather(*(judge.judge(str(at), *text) for at, text in enumerate(texts)))
    return judge, found


async def test_no_more_than_allowed_is_under_way_at_once(server: OpenAIServer) -> None:
    server.seconds = 0.02
    await judged(gate(server, concurrency=3), 20)
    assert server.most_under_way == 3
