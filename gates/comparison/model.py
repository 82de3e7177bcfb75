"""The nouns of a comparison: who is asked, and what both answered to one prompt."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from gates.model import EngineReply
from tidegate.core.model import Value


class ApiForm(StrEnum):
    """Which of OpenAI's interfaces is asked."""

    CHAT = "chat"
    """`/chat/completions`: the prompt is the user's message, and the endpoint applies its chat template."""
    COMPLETIONS = "completions"
    """`/completions`: the prompt is what the model continues."""


class Endpoint(Value):
    """One arm: where it is asked, and by which name."""

    url: str
    """Base address, with `/v1` or what stands for it."""
    model: str
    api: ApiForm = ApiForm.CHAT

    def __str__(self) -> str:
        return f"{self.model} at {self.url}"


LEAST_STEP = 1e-6
"""Seconds between two pairs: times of evidence rise, also where a clock does not."""


class EndpointsLine(Value):
    """The first line of a file of answers: whose they are."""

    kind: Literal["endpoints"] = "endpoints"
    stable: Endpoint
    canary: Endpoint


class AnsweredPair(Value):
    """What both endpoints answered to one prompt, asked at the same moment."""

    kind: Literal["pair"] = "pair"
    time: float = Field(ge=0, allow_inf_nan=False)
    """Unix time in seconds when both were over; rises within a comparison."""
    prompt: str
    stable: EngineReply | None
    """None when it was reached and did not answer as endpoints do."""
    canary: EngineReply | None
    stable_error: str = ""
    """Why there is no answer."""
    canary_error: str = ""
