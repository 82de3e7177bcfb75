"""The few looks at each comparison, which stay valid however often the gate is asked.

It looks only when the canary's requests have grown by half, and spends a smaller part of its error
budget at each look: when it looks depends on how many requests came, never on what they were.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from gates.drift.divergence import Divergence
from gates.drift.features import Feature
from gates.drift.spec import Allowed
from gates.drift.strata import Strata

GROWTH = 1.5
"""Of the canary's requests between two looks."""

PASS_LEVEL = 0.05
"""Chance of passing when the true divergence is just what is allowed; for one comparison, over all its looks."""


class Side(StrEnum):
    """What is compared with what."""

    ARMS = "arms"
    """The canary with the stable arm at the same time."""
    USERS = "users"
    """Both arms together with the reference window."""


@dataclass(frozen=True)
class Comparison:
    """One question of the gate."""

    side: Side
    feature: Feature
    allowed: Allowed
    is_input: bool

    @property
    def threshold(self) -> float:
        """Of the divergence."""
        return self.allowed.threshold(self.feature)

    @property
    def name(self) -> str:
        """Names its numbers: `length`, or `users_language` for what users ask in general."""
        return str(self.feature) if self.side is Side.ARMS else f"users_{self.feature}"


@dataclass(frozen=True)
class Look:
    """What was seen when it was looked."""

    number: int
    """1 is the first."""
    requests: int
    """Of the canary; of both arms on the side of the users."""
    against: int
    """Of the stable arm, or of the reference."""
    divergence: Divergence
    p_value: float
    """That the true divergence is within what is allowed; of this look alone."""
    at_most: float
    """What the true divergence is below, as sure as `PASS_LEVEL` says of all looks together."""


def spending(number: int) -> float:
    """By how much a look's p-value grows because there are others: 1 over its share of the budget.

    The shares 6 / (pi k)^2 of all looks k = 1, 2, ... sum to 1.
    """
    return (math.pi * number) ** 2 / 6


@dataclass(frozen=True)
class Progress:
    """Of one comparison."""

    strata: Strata
    look: Look | None = None
    p_value: float = 1.0
    """The least of all looks so far, each corrected by `spending`: valid at any time."""
    requests: int = 0
    """Counted so far, looked at or not."""
    against: int = 0

    def plus(self, comparison: Comparison, minimum: int, against: tuple[int, ...], seen: tuple[int, ...]) -> Progress:
        """Count a batch, and look if it is time."""
        grown = replace(
            self,
            strata=self.strata.plus(against, seen),
            requests=self.requests + sum(seen),
            against=self.against + sum(against),
        )
        due = GROWTH * self.look.requests if self.look else minimum
        return grown.looked(comparison, minimum) if grown.requests >= due else grown

    def looked(self, comparison: Comparison, minimum: int) -> Progress:
        """Look now, unless there is too little, or nothing new."""
        strata = self.strata.closed()
        if min(strata.canary_requests, strata.stable_requests) < minimum:
            return self
        if self.look and self.look.requests == self.requests:
            return self
        number = self.look.number + 1 if self.look else 1
        divergence = strata.divergence(comparison.allowed.statistic)
        p_value = max(divergence.chance_above(comparison.threshold), strata.chance())
        at_most = divergence.upper(PASS_LEVEL / spending(number))
        look = Look(number, self.requests, self.against, divergence, p_value, at_most)
        return replace(self, look=look, p_value=min(self.p_value, p_value * spending(number)))
