"""Scores an answer against the expected one, 0 to 1, after the same normalisation on both sides."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping

from gates.spec import Scorer

_NUMBER = re.compile(r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?")
# "A lamp" and "the lamp" are the same answer.
_ARTICLES = frozenset({"a", "an", "the"})


def score(scorer: Scorer, answer: str, expected: str) -> float:
    """How good `answer` is by that scorer."""
    return _SCORERS[scorer](answer, expected)


def similarity(one: str, other: str) -> float:
    """Token F1 of two answers: 1 for the same words, whatever their order; two empty ones are alike."""
    return _f1(one, other)


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
    numbers = [float(number.replace(",", "")) for number in _NUMBER.findall(answer)]
    return float(bool(numbers) and numbers[-1] == float(expected.replace(",", "")))


def _f1(answer: str, expected: str) -> float:
    got, want = Counter(_words(answer)), Counter(_words(expected))
    if not got or not want:
        return float(got == want)
    shared = sum((got & want).values())
    return 2 * shared / (sum(got.values()) + sum(want.values()))


_SCORERS: Mapping[Scorer, Callable[[str, str], float]] = {
    Scorer.CONTAINS: _contains,
    Scorer.EXACT: _exact,
    Scorer.NUMERIC: _numeric,
    Scorer.F1: _f1,
}
