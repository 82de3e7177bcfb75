"""The load: what it is asked to do, how it measures a streamed answer, and what it remembers of each request.

A request is a line of `traffic/<name>.jsonl`; its prompt and its answer are never written down. Knows no HTTP client.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from gates.text import OPENING_CHARACTERS
from tidegate.core.errors import OutsideError
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


_PREFIX = b"data:"


class StreamMeter:
    """Fed line by line with the time each arrived, in seconds since the request was sent."""

    def __init__(self) -> None:
        """Nothing has arrived yet."""
        self.done = False
        """`[DONE]` arrived: the stream is complete."""
        self.broken = False
        """The server reported an error within the stream, or sent what is no event."""
        self.finish_reason = ""
        self.first_token: float | None = None
        self.opening = ""
        """The first characters of the answer, as many as tell a refusal; the rest is not kept."""
        self.prompt_tokens: int | None = None
        """As the server counted; None when it did not."""
        self._last_token = 0.0
        self._chunks = 0
        self._usage: int | None = None
        self._entropies = 0.0
        self._entropy_tokens = 0

    def feed(self, line: bytes, at: float) -> None:
        """Take in one line; empty ones and comments separate events and say nothing."""
        if not line.startswith(_PREFIX):
            return
        payload = line.removeprefix(_PREFIX).strip()
        if payload == b"[DONE]":
            self.done = True
            return
        try:
            event = json.loads(payload)
        except ValueError:
            self.broken = True
            return
        self._event(event, at)

    @property
    def output_tokens(self) -> int:
        """As the server counted; else the chunks with text, each of one token or more."""
        return self._chunks if self._usage is None else self._usage

    @property
    def itl_mean(self) -> float | None:
        """Seconds between tokens after the first; None with fewer than two tokens."""
        if self.first_token is None or self.output_tokens < 2:
            return None
        return (self._last_token - self.first_token) / (self.output_tokens - 1)

    @property
    def entropy(self) -> float | None:
        """Nats, mean over the tokens whose log probabilities came; None when none did."""
        return self._entropies / self._entropy_tokens if self._entropy_tokens else None

    def _event(self, event: dict[str, Any], at: float) -> None:
        if "error" in event:
            self.broken = True
        usage = event.get("usage")
        # The server sends it last, when it was asked to (`include_usage`).
        if usage:
            self._usage = int(usage["completion_tokens"])
            self.prompt_tokens = usage.get("prompt_tokens")
        for choice in event.get("choices", []):
            text = choice.get("delta", {}).get("content")
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            if text or choice.get("finish_reason"):
                # An answer may be empty; then its end is the first thing that a user gets.
                self.first_token = at if self.first_token is None else self.first_token
            if text:
                self._last_token = at
                self._chunks += 1
                if len(self.opening) < OPENING_CHARACTERS:
                    self.opening = (self.opening + text)[:OPENING_CHARACTERS]
            self._logprobs(choice.get("logprobs"))

    def _logprobs(self, logprobs: dict[str, Any] | None) -> None:
        for token in (logprobs or {}).get("content") or ():
            entropy = token_entropy([likely.get("logprob", math.nan) for likely in token.get("top_logprobs") or ()])
            if entropy is not None:
                self._entropies += entropy
                self._entropy_tokens += 1


def token_entropy(logprobs: Sequence[float]) -> float | None:
    """Entropy in nats of one next token, from the log probabilities of the likeliest ones.

    What they leave over counts as one more token, so this is a lower bound. None when they are no
    log probabilities.
    """
    if not logprobs or any(math.isnan(value) or value > 1e-3 for value in logprobs):
        return None
    shares = [math.exp(value) for value in logprobs]
    rest = max(0.0, 1.0 - sum(shares))
    return -sum(share * math.log(share) for share in (*shares, rest) if share > 0) + 0.0


class RecordReader:
    """Follows one file: each call reads what was appended since the last."""

    def __init__(self, path: Path, *, offset: int = 0) -> None:
        """`offset` is where to begin, in bytes; it must be the start of a line."""
        self.path = path
        self.offset = offset

    def read_new(self) -> list[RequestRecord]:
        """The records appended since the last call; a line without its end waits for the next.

        Raises:
            OutsideError: when the file is not there, or a complete line is no record.
        """
        return [record for record, _ in self.read_lines()]

    def read_lines(self) -> Iterator[tuple[RequestRecord, bytes]]:
        """As `read_new`, one after the other, each record with its line; what was not taken is read again."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                data = file.read()
        except OSError as error:
            raise OutsideError(f"cannot read the load's records {self.path}: {error.strerror}") from error
        # The load writes while we read: its last line may be half there.
        for line in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
            if line.strip():
                yield self._parse(line), line
            self.offset += len(line)

    def _parse(self, line: bytes) -> RequestRecord:
        try:
            return RequestRecord.model_validate_json(line)
        except ValidationError as error:
            raise OutsideError(
                f"{self.path} has a line that is no record", hint="is another program writing to it?", detail=str(error)
            ) from error


class LoadPlan(Value):
    """What the load process is told."""

    entries: Mapping[str, str] = Field(min_length=1)
    """Region to the address its users talk to."""
    rate: float = Field(gt=0)
    """Requests a second and region. Arrivals are Poisson and wait for nobody: users do not know that
    a server is slow before they ask."""
    prompts: str
    """File with a prompt per line, or JSON lines with a `prompt` each."""
    model: str
    """What requests carry in their `model` field."""
    max_tokens: int = Field(ge=1)
    """The longest answer that a user asks for."""
    records: str
    """File to which a record per request is appended."""
    timeout_seconds: float = Field(default=120, gt=0)
    """Without a byte; the request then counts as failed."""
    regenerate: float = Field(default=0, ge=0, lt=1)
    """The share of answered requests whose users ask the same once more, because they did not want the answer. Those
    come on top of `rate`."""
    seed: int = 0
    """For arrivals and the choice of prompts."""
    parent: int
    """Process whose death ends the load."""


class LoadTotals(Value):
    """What became of all requests that ended."""

    requests: int
    failed: int
    """Not answered in full with a 2xx; includes `cut` and 4xx."""
    cut: int
    """Streams that began and did not end."""


def totals(records: Iterable[RequestRecord]) -> LoadTotals:
    """Count what ended, and how."""
    requests = failed = cut = 0
    for record in records:
        requests += 1
        failed += not record.ok
        cut += record.cut
    return LoadTotals(requests=requests, failed=failed, cut=cut)
