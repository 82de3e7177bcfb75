"""Engines that answer at once, from a script."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gates.errors import BadAnswer
from gates.model import EngineReply
from tidegate.core.errors import OutsideError

Script = Callable[[str], str]
"""What an engine says to a prompt."""


def answers_500(prompt: str) -> str:
    """The script of an engine that fails at every prompt."""
    raise BadAnswer("the engine answers 500: CUDA error")


class FakeChat:
    """A `Chat`: every engine, named by its address, has a script and a time to its first token."""

    def __init__(self, scripts: Mapping[str, Script], *, ttft: Mapping[str, float] | None = None) -> None:
        """Addresses without a script are dead; `ttft` is in seconds, 0.1 where it says nothing."""
        self.scripts = dict(scripts)
        self.ttft = dict(ttft or {})
        self.tokens_per_word = 1
        self.on_ask: Callable[[], object] = lambda: None
        """Done whenever any engine is asked, before it answers."""

    async def ask(self, url: str, model: str, prompt: str, *, max_tokens: int) -> tuple[EngineReply, tuple[int, ...]]:
        self.on_ask()
        if url not in self.scripts:
            raise OutsideError(f"the engine at {url} is not there")
        words = self.scripts[url](prompt).split()[:max_tokens]
        first, rest = self.ttft.get(url, 0.1), 0.01 * len(words)
        reply = EngineReply(
            text=" ".join(words),
            finish_reason="stop",
            output_tokens=len(words),
            ttft_seconds=first,
            itl_seconds=rest / (len(words) - 1) if len(words) > 1 else None,
            duration_seconds=first + rest,
        )
        return reply, tuple(range(len(words)))

    async def tokenize(self, url: str, model: str, messages: Sequence[Mapping[str, str]]) -> list[int]:
        return tokens_of(messages) * self.tokens_per_word


class FakeTokenizer:
    """A `Tokenizer` that agrees with `FakeChat`."""

    def encode(self, folder: Path, messages: Sequence[Mapping[str, str]]) -> list[int]:
        return tokens_of(messages)


def tokens_of(messages: Sequence[Mapping[str, str]]) -> list[int]:
    return [len(word) for message in messages for word in message["content"].split()]
