"""What is kept of an answer: bounded, and without secrets."""

from __future__ import annotations

from collections.abc import Iterable

MOST_BYTES = 16 << 20
"""Of an answer; more is none."""
KEPT_CHARACTERS = 64 << 10
"""The end of it, for a person."""
MASK = "***"
SHORTEST = 4
"""Less is no secret, and would be found in any text."""


def masked(text: str, secrets: Iterable[str]) -> str:
    """`text` without those values; the longest first, since one may hold another."""
    for secret in sorted({each for each in secrets if len(each) >= SHORTEST}, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text
