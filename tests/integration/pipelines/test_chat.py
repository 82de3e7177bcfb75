"""`OpenAIChat` against a small server that speaks the wire format."""

from __future__ import annotations

import pytest
from fakes.services.chat_servers import chat_server

from gates.errors import BadAnswer
from pipelines.adapters.chat import OpenAIChat
from tidegate.core.errors import OutsideError


async def test_an_answer_has_its_text_tokens_and_times() -> None:
    with chat_server() as server:
        answer = await OpenAIChat().ask(server.url, "m", "2 + 2?", max_tokens=8)
    assert (answer.text, answer.tokens, answer.finish_reason) == ("The answer is four", (0, 1, 2, 3), "stop")
    assert answer.ttft_seconds
    assert answer.duration_seconds
    assert 0.04 < answer.ttft_seconds < answer.duration_seconds - 0.1
    sent = server.bodies[0]
    assert (sent["temperature"], sent["seed"], sent["return_token_ids"], sent["max_tokens"]) == (0, 0, True, 8)


BY_THE_ENGINE = {
    "refuse": "answers 400: no",
    "fail": "answers 500: CUDA error: device-side assert",
    "crash": "answers 500: Internal Server Error",
    "dead": "answers 503: EngineCore died",
    "unknown": "answers 404: The model `unknown` does not exist.",
    "foreign": "answers 404: Not Found",
    "cut": "broke off its answer",
    "vanish": "broke off its answer",
    "hang": "took too long to answer",
    "nonsense": "answers what is no OpenAI response",
    "other-form": "answers what is no OpenAI response",
    "page": "broke off its answer after 0 tokens",
    "mid-error": "broke off its answer with: out of memory",
}
BY_WHAT_STANDS_BEFORE = {
    "gateway": "answers 503: no healthy upstream",
    "no-route": "answers 404: no words",
    "late-gateway": "answers 504: <html>Gateway Time-out</html>",
    "no-access": "answers 401: Invalid API key",
    "too-many": "answers 429: slow down",
}


@pytest.mark.parametrize(("model", "what"), BY_THE_ENGINE.items())
async def test_what_an_engine_does_wrong_is_a_bad_answer_and_never_tried_again(model: str, what: str) -> None:
    with chat_server() as server:
        with pytest.raises(BadAnswer) as caught:
            await OpenAIChat(timeout_seconds=0.5).ask(server.url, model, "2 + 2?", max_tokens=8)
        assert caught.value.message.startswith(f"the engine at {server.url} {what}")
        assert len(server.bodies) == 1


@pytest.mark.parametrize(("model", "what"), BY_WHAT_STANDS_BEFORE.items())
async def test_what_no_engine_says_is_not_its_fault(model: str, what: str) -> None:
    with chat_server() as server:
        with pytest.raises(OutsideError) as caught:
            await OpenAIChat().ask(server.url, model, "2 + 2?", max_tokens=8)
        assert caught.value.message == f"{server.url} {what}"
        assert not isinstance(caught.value, BadAnswer)
        assert len(server.bodies) == 1


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "http://no-such-host.invalid", "http://[::1]:9"])
async def test_an_engine_that_was_not_reached_did_nothing_wrong(address: str) -> None:
    with pytest.raises(OutsideError, match="does not answer: ") as caught:
        await OpenAIChat().ask(address, "m", "2 + 2?", max_tokens=8)
    assert not isinstance(caught.value, BadAnswer)


async def test_an_engine_that_falls_silent_within_its_answer_is_named() -> None:
    with chat_server(token_seconds=2) as server, pytest.raises(BadAnswer, match="took too long"):
        await OpenAIChat(timeout_seconds=0.3).ask(server.url, "m", "2 + 2?", max_tokens=8)


@pytest.mark.parametrize("model", ["fail", "page", "other-form", "vanish", "hang"])
async def test_tokens_that_do_not_come_are_a_bad_answer_too(model: str) -> None:
    with chat_server() as server, pytest.raises(BadAnswer):
        await OpenAIChat(timeout_seconds=0.5).tokenize(server.url, model, [{"role": "user", "content": "2"}])
