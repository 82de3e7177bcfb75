"""An endpoint that is compared with another: its answers, its key, and how few it lets through."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from fakes.services.chat_servers import chat_server, endpoint_server
from fakes.services.http import QuietHandler, answering

from gates.adapters.compare import Arm, ask, base_url, refuse_open_key
from gates.adapters.openai import OpenAIClient
from gates.answers.golden import GoldenPrompt
from gates.model import ApiForm, ChatAnswer
from tidegate.core.errors import OutsideError, UsageError


async def answer(
    url: str, model: str = "m", *, api: ApiForm = ApiForm.CHAT, key: str = "", timeout_seconds: float = 5
) -> ChatAnswer:
    async with OpenAIClient(f"{url}/v1", key=key, timeout_seconds=timeout_seconds, direct=False) as client:
        return await ask(client, model, api, GoldenPrompt(prompt="2 + 2?", expected="4", max_tokens=8))


async def test_an_answer_has_its_text_tokens_and_times() -> None:
    with chat_server() as server:
        found = await answer(server.url)
    assert (found.text, found.output_tokens, found.finish_reason) == ("The answer is four", 4, "stop")
    assert found.duration_seconds is not None and found.itl_seconds is not None
    assert 0.04 < found.ttft_seconds < found.duration_seconds - 0.1
    sent = server.bodies[0]
    assert (sent["temperature"], sent["seed"], sent["max_tokens"]) == (0, 0, 8)


async def test_only_a_line_feed_ends_a_line_of_a_stream() -> None:
    class Engine(QuietHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            chunk = {"choices": [{"delta": {"content": "yes\u2028it\x85is"}, "finish_reason": "stop"}]}
            self.answer(f"data:{json.dumps(chunk, ensure_ascii=False)}\r\n\r\ndata: [DONE]")

    with answering(Engine) as address:
        assert (await answer(f"http://{address}")).text == "yes\u2028it\x85is"


async def test_completions_are_asked_without_a_conversation() -> None:
    with endpoint_server(lambda prompt: f"{prompt} is four") as server:
        found = await answer(server.url, api=ApiForm.COMPLETIONS)
    assert (found.text, server.bodies[0]["prompt"]) == ("2 + 2? is four", "2 + 2?")


async def test_a_key_is_sent_and_never_told(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("sk-right\n")
    with endpoint_server(key="sk-right", models=("a", "b")) as server:
        assert (await answer(server.url, key="sk-right")).text == "2 + 2?"
        with pytest.raises(UsageError, match="serves 2 models: a, b; name one: --canary-model"):
            async with Arm("canary", server.url, key=f"@{key}").opened(timedelta(seconds=5), print):
                pass
        with pytest.raises(OutsideError) as caught:
            await answer(server.url, key="sk-wrong")
    assert (caught.value.message, caught.value.detail) == (f"{server.url}/v1 answers 401", None)


async def test_who_lets_few_through_is_asked_again() -> None:
    with endpoint_server(busy=2) as server:
        assert (await answer(server.url)).text == "2 + 2?"
    with endpoint_server(busy=20) as server, pytest.raises(OutsideError, match="answers 429"):
        await answer(server.url)


def test_addresses() -> None:
    assert base_url("http://h:8000", "--stable") == "http://h:8000/v1"
    assert base_url("https://h/openai/v1/", "--stable") == "https://h/openai/v1"
    for wrong in ("h:8000", "http://", "http://h:x", "https://me:secret@h/v1", "https://h/v1?key=secret"):
        with pytest.raises(UsageError) as caught:
            base_url(wrong, "--stable")
        assert "secret" not in str(caught.value)
    refuse_open_key("http://127.0.0.1:8000/v1", "--stable-key")
    with pytest.raises(UsageError, match="without TLS"):
        refuse_open_key("http://10.0.0.1:8000/v1", "--stable-key")
