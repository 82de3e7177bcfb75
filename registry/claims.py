"""Which of several processes that would carry a delivery on may do so. Pure.

MLflow has no compare-and-set. So each writes a claim of its own first, looks second, and writes its mark as the owner
only when it saw no other claim against the owner whom it would replace. Of two claims at least the later writer sees
the other: the younger one withdraws, the older one waits until that is done, or until somebody is the owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum

from registry.conventions import CLAIM_PREFIX, OWNER
from tidegate.core.model import Value

CLAIM_SECONDS = 60.0
"""An older claim is one of a process that died before it withdrew."""


class Claim(Value):
    """One process's wish to carry a delivery on."""

    mark: str
    """Its own; nobody else has it."""
    made: datetime
    over: str
    """The mark of the owner whom it would replace; empty when there was none."""

    @property
    def tag(self) -> dict[str, str]:
        """As it is written on the run."""
        return {CLAIM_PREFIX + self.mark: f"{self.made.isoformat()} {self.over}"}

    @property
    def withdrawn(self) -> dict[str, str]:
        """What takes its place once it counts no more."""
        return {CLAIM_PREFIX + self.mark: ""}

    def old(self, now: datetime, *, after: float = CLAIM_SECONDS) -> bool:
        """Whether it was made too long ago to count."""
        return now - self.made > timedelta(seconds=after)


class Standing(Enum):
    """What a look at the others says of a claim."""

    WON = "won"
    WAITS = "waits"
    LOST = "lost"


def standing(mine: Claim, tags: Mapping[str, str], now: datetime) -> Standing:
    """Where `mine` stands among what is written on the run now."""
    # One that was held up this long may be taken for dead already.
    if tags.get(OWNER, "") != mine.over or mine.old(now, after=CLAIM_SECONDS / 2):
        return Standing.LOST
    others = [each for each in _claims(tags) if each.mark != mine.mark and each.over == mine.over and not each.old(now)]
    if any((each.made, each.mark) < (mine.made, mine.mark) for each in others):
        return Standing.LOST
    return Standing.WAITS if others else Standing.WON


def _claims(tags: Mapping[str, str]) -> list[Claim]:
    written = {key.removeprefix(CLAIM_PREFIX): value for key, value in tags.items() if key.startswith(CLAIM_PREFIX)}
    return [
        Claim(mark=mark, made=datetime.fromisoformat(made), over=over)
        for mark, (made, _, over) in ((mark, value.partition(" ")) for mark, value in written.items() if value)
    ]
