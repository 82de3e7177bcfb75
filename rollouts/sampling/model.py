"""What is said to pods about samples, and what they say."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from tidegate.core.model import Json, Value


class SampleEndpoint(Value):
    """Where an engine is asked, and what proves who asks."""

    path: str
    headers: Mapping[str, str] = Field(repr=False)


class PodAnswers(Value):
    """What the pods of an arm gave away at one time."""

    answers: tuple[Json, ...] = Field(default=(), repr=False)
    """One for each pod that had been asked for samples and has said what it kept."""
    problem: str = ""
    """Which pods give nothing for too long, and why, in one line; empty for none."""
