"""What drift looks at: a few numbers and names of one request and of its answer, never their words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from gates.load.records import RequestRecord
from tidegate.core.model import Value

if TYPE_CHECKING:
    # A batch holds counts of features; only names of types go the other way.
    from gates.evidence import PairedReply


class Feature(StrEnum):
    """One thing that can drift; the first three are of prompts, the others of answers."""

    PROMPT_LENGTH = "prompt_length"
    """In characters: tokens would change with the tokenizer of the version that counts them."""
    LANGUAGE = "language"
    TOPIC = "topic"
    LENGTH = "length"
    """In tokens, as the engine counted."""
    ENTROPY = "entropy"
    """Of the next token, mean over the answer, in nats."""
    FINISH_REASON = "finish_reason"
    REFUSAL = "refusal"
    """Whether the answer declines in words."""


NUMERIC = frozenset({Feature.PROMPT_LENGTH, Feature.LENGTH, Feature.ENTROPY})
"""Those with an order; the others are names."""
ANSWER_NUMBERS = NUMERIC - {Feature.PROMPT_LENGTH}

Features = Mapping[Feature, float | str]
"""Of one request. What is not known is not in here: it is neither 0 nor a category of its own."""


class PromptFeatures(Value):
    """What is known of a prompt before it is sent."""

    characters: int
    language: str = ""
    """ISO 639-1; empty when it is not known or too short to tell."""
    topic: int | None = None
    """The cluster of a frozen topic model; None without one."""


def features_of_record(record: RequestRecord) -> Features:
    """What a line of the load's records says; an answer that did not end well has no features."""
    known: dict[Feature, float | str | None] = {
        Feature.PROMPT_LENGTH: record.prompt_characters,
        Feature.LANGUAGE: record.prompt_language or None,
        Feature.TOPIC: _name(record.prompt_topic),
    }
    if record.ok:
        known |= {
            Feature.LENGTH: record.output_tokens,
            Feature.ENTROPY: record.entropy,
            Feature.FINISH_REASON: record.finish_reason or None,
            Feature.REFUSAL: _name(record.refusal),
        }
    return _only_known(known)


def features_of_reply(reply: PairedReply) -> Features:
    """What one arm's side of a pair says of its answer; both arms of a pair had the same prompt."""
    known: dict[Feature, float | str | None] = {
        Feature.LENGTH: reply.output_tokens,
        Feature.ENTROPY: reply.entropy,
        Feature.FINISH_REASON: reply.finish_reason or None,
        Feature.REFUSAL: _name(reply.refusal),
    }
    return _only_known(known)


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


def _name(value: int | bool | None) -> str | None:
    return None if value is None else str(value).lower()


def _only_known(values: Mapping[Feature, float | str | None]) -> Features:
    return {
        feature: value
        for feature, value in values.items()
        if value is not None and (isinstance(value, str) or math.isfinite(value))
    }
