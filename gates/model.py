"""Verdicts: what a gate says, from best to worst, always with its reason and its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

from tidegate.core.model import Value


class Outcome(IntEnum):
    """Ordered from best to worst, so that `max` of several is what they mean together."""

    PASS = 0
    RUNNING = 1
    """Too early to say; ask again while traffic flows."""
    INCONCLUSIVE = 2
    """The time is over and the evidence does not suffice. Never promotes."""
    ERROR = 3
    """The evidence could not be read. Says nothing about the version."""
    FAIL = 4

    def __str__(self) -> str:
        return self.name.lower()


class Verdict(Value):
    """One gate's answer at one moment."""

    gate: str
    outcome: Outcome
    reason: str
    """One sentence a person understands."""
    numbers: Mapping[str, float] = {}
    """What the sentence rests on; names carry their unit (`ttft_p95_canary_seconds`)."""

    @property
    def decided(self) -> bool:
        """Whether asking again could change nothing."""
        return self.outcome in (Outcome.PASS, Outcome.FAIL)


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """What several outcomes mean together; no outcome at all is `INCONCLUSIVE`, never a pass."""
    return max(outcomes, default=Outcome.INCONCLUSIVE)
