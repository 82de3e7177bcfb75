"""What is remembered of a user's request; a line of `traffic/<name>.jsonl`, without its prompt and its answer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tidegate.core.model import Value

Failure = Literal["", "connect", "timeout", "status", "cut", "protocol"]
"""Classes of failure: no connection, no byte in time, a status that is not 2xx, a stream that began and did not end,
an error within the stream. The prompt and the answer are never written down."""

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class RequestRecord(Value):
    """One user request, written once it is over."""

    started: Seconds
    """Unix time in seconds."""
    region: str
    role: str = ""
    """From the answer's headers, as is `version`; empty when no answer came."""
    version: str = ""
    status: int = 0
    """The HTTP status; 0 when no answer came."""
    ok: bool
    """A 2xx whose stream ended with `[DONE]`."""
    cut: bool = False
    """The stream began and did not end."""
    error: Failure = ""
    ttft_seconds: Seconds | None = None
    """From sending the request to the first token; None when none came."""
    itl_mean_seconds: Seconds | None = None
    """Mean time between tokens after the first; None when there were fewer than two."""
    duration_seconds: Seconds
    output_tokens: int = 0
    finish_reason: str = ""
    refusal: bool | None = None
    """Whether the answer declines in words; None when there was none. Not to be mistaken for `refused`."""
    entropy: float | None = None
    """Mean over the answer's tokens, in nats; None when its log probabilities were not asked for."""
    prompt_characters: int | None = None
    """This and all below are None or empty in lines of loads that did not look."""
    prompt_tokens: int | None = None
    """As the engine counted, with its chat template."""
    prompt_language: str = ""
    """ISO 639-1; empty also when the prompt is too short to tell."""
    prompt_topic: int | None = None
    """A cluster of the load's frozen topic model; None when it has none."""

    @property
    def ended(self) -> float:
        """Unix time in seconds: a request belongs to the window in which it ended."""
        return self.started + self.duration_seconds

    @property
    def refused(self) -> bool:
        """Answered with a 4xx."""
        return 400 <= self.status < 500
