"""`OpenAIChat` against a small server that speaks the wire format."""

from __future__ import annotations

import pytest
from fakes.chat_server import chat_server

from pipelines.adapters.chat import OpenAIChat
from tidegate.core.errors import OutsideError


async def test_an_answer_has_its_text_tokens_and_times() -> None:
    with chat_server() as server:
        answer = await OpenAIChat().ask(server.url, "m", "2 + 2?", max_tokens=8)
    assert (answer.text, answer.tokens, answer.finish_reason) == ("The answer is four", (0, 1, 2, 3), "stop")
    assert 0.04 < answer.ttft_seconds < answer.duration_seconds - 0.1
    sent = server.bodies[0]
    assert (sent["temperature"], sent["seed"], sent["return_token_ids"], sent["max_tokens"]) == (0, 0, True, 8)


@pytest.mark.parametrize(
    ("model", "what"), [("refuse", "refused the prompt with 400"), ("fail", "with 500"), ("cut", "answer")]
)
async def test_every_failure_is_named_and_never_tried_again(model: str, what: str) -> None:
    with chat_server() as server:
        with pytest.raises(OutsideError, match=what):
            await OpenAIChat().ask(server.url, model, "2 + 2?", max_tokens=8)
        assert len(server.bodies) == 1


async def test_an_engine_that_is_not_there_or_silent_is_named() -> None:
    with pytest.raises(OutsideError, match="does not answer"):
        await OpenAIChat().ask("http://127.0.0.1:9", "m", "2 + 2?", max_tokens=8)
    with chat_server(token_seconds=2) as server, pytest.raises(OutsideError, match=r"took too long|broke off|answer"):
        await OpenAIChat(timeout_seconds=0.3).ask(server.url, "m", "2 + 2?", max_tokens=8)
