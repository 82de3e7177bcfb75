"""Scores an answer against the expected one, 0 to 1, after the same normalisation on both sides."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping

import jsonschema_rs
import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from gates.spec import Scorer

Schema = Mapping[str, JsonValue]
"""A JSON schema; its drafts and keywords are those of jsonschema-rs."""
Vector = NDArray[np.float32]

_NUMBER = re.compile(r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][-+]?\d+)?")
# "A lamp" and "the lamp" are the same answer.
_ARTICLES = frozenset({"a", "an", "the"})


def score(scorer: Scorer, answer: str, expected: str) -> float:
    """How good `answer` is by a scorer that looks at words and numbers.

    Raises:
        KeyError: for a scorer that needs more than two texts: `fits`, `nearness` and `likelihood` are theirs.
    """
    return _SCORERS[scorer](answer, expected)


def similarity(one: str, other: str) -> float:
    """Token F1 of two answers: 1 for the same words, whatever their order; two empty ones are alike."""
    return _f1(one, other)


def fits(answer: str, schema: Schema) -> float:
    """1 when the answer is JSON, with nothing around it, that the schema accepts.

    Strict on purpose: a program that reads the answer does not look for JSON between words or in a fence.

    Raises:
        ValueError: when the schema is none.
    """
    validator = compiled(schema)
    try:
        return float(validator.is_valid(json.loads(answer, parse_constant=_refuse_constant)))
    # A recursion error: an answer may be ten thousand brackets.
    except (ValueError, RecursionError):
        return 0.0


def compiled(schema: Schema) -> jsonschema_rs.Validator:
    """What checks answers against the schema; never fetches what the schema refers to.

    Raises:
        ValueError: when the schema is none, or refers to something outside itself.
    """
    return jsonschema_rs.validator_for(dict(schema), offline=True)


def nearness(one: Vector, other: Vector) -> float:
    """Cosine of two embeddings, 0 when it is negative or when one is a zero vector: a text without words."""
    size = float(np.linalg.norm(one)) * float(np.linalg.norm(other))
    return min(1.0, max(0.0, float(one @ other) / size)) if size else 0.0


def likelihood(mean_logprob: float) -> float:
    """The geometric mean of the tokens' probabilities, from the mean of their natural logarithms."""
    return min(1.0, math.exp(mean_logprob))


def number(text: str) -> float:
    """Read a finite number; commas may part its thousands.

    Raises:
        ValueError: when it is none.
    """
    value = float(text.replace(",", ""))
    if not math.isfinite(value):
        raise ValueError(f"{text} is not finite")
    return value


def _words(text: str) -> list[str]:
    """Lower case, compatibility characters folded, punctuation and articles gone."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    words = [word for word in re.findall(r"\w+", folded) if word not in _ARTICLES]
    # "A" may be the whole answer; then it is no article.
    return words or re.findall(r"\w+", folded)


def _contains(answer: str, expected: str) -> float:
    needle, words = _words(expected), _words(answer)
    starts = range(len(words) - len(needle) + 1)
    return float(bool(needle) and any(words[start : start + len(needle)] == needle for start in starts))


def _exact(answer: str, expected: str) -> float:
    return float(_words(answer) == _words(expected))


def _numeric(answer: str, expected: str) -> float:
    """Whether the last number of the answer is the expected one: models restate the question first."""
    numbers = [float(found.replace(",", "")) for found in _NUMBER.findall(answer)]
    return float(bool(numbers) and numbers[-1] == number(expected))


def _f1(answer: str, expected: str) -> float:
    got, want = Counter(_words(answer)), Counter(_words(expected))
    if not got or not want:
        return float(got == want)
    shared = sum((got & want).values())
    return 2 * shared / (sum(got.values()) + sum(want.values()))


def _refuse_constant(constant: str) -> float:
    raise ValueError(f"{constant} is no JSON")


_SCORERS: Mapping[Scorer, Callable[[str, str], float]] = {
    Scorer.CONTAINS: _contains,
    Scorer.EXACT: _exact,
    Scorer.NUMERIC: _numeric,
    Scorer.F1: _f1,
}
