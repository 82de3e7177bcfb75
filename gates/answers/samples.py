"""A user's request and its answer as an engine kept them: redacted, and in memory for as long as it takes to judge."""

from __future__ import annotations

from pydantic import Field

from gates.evidence.batch import Count, Seconds
from tidegate.core.model import Value


class UserSample(Value):
    """One exchange; never printed, because it holds what a user wrote."""

    at: float = Field(ge=0, allow_inf_nan=False)
    """Unix time in seconds at which it was over."""
    pair: str
    """The same for a request and its mirrored copy."""
    prompt: str = Field(repr=False)
    """The message, or the conversation with its roles."""
    answer: str = Field(repr=False)
    finish_reason: str = ""
    tokens: Count | None = None
    """Of the answer, as the engine counted."""
    whole: bool
    """The answer came to its end, and the user was still there; not that of a request that failed."""
    ttft: Seconds | None = None
    seconds: Seconds


class TakenSamples(Value):
    """What an arm's engines gave away at one time."""

    samples: tuple[UserSample, ...] = Field(default=(), repr=False)
    problem: str = ""
    """Why some of its engines give nothing, in one line; empty when all is well."""
    complete: bool = True
    """Every engine of it keeps some by now."""
