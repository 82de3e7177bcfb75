"""The section `samples`: which share of users' requests engines keep for gates, and what is taken out before."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from pydantic import Field

from engine_images.samples.key import REDACTED
from tidegate.core.model import SpecModel
from tidegate.core.units import Duration, Percent

Redacted = Literal["email", "key", "iban", "card", "ip", "phone", "number", "name"]
"""What can be taken out of a text; as `engine_images.samples.key.REDACTED`."""


class SamplesSpec(SpecModel):
    """What engines keep of users' requests and answers while a stage asks for it; without this section nothing."""

    share: Percent = Field(default=0.05, gt=0, le=1, validate_default=False)
    """Of a region's requests. Half of it from each arm where users are on both, as far as an arm has so many."""
    redact: tuple[Redacted, ...] = REDACTED  # type: ignore[assignment]
    """Taken out in the engine, before anything is kept."""
    words: tuple[str, ...] = ()
    """Taken out too, whatever their case."""
    max_entries: int = Field(default=500, ge=1, le=10_000)
    """In each engine; the oldest goes first."""
    max_megabytes: int = Field(default=8, ge=1, le=256)
    """The same by size."""
    keep: Duration = Field(default=timedelta(minutes=2), ge=timedelta(seconds=10), le=timedelta(minutes=15))
    """How long an engine keeps what nobody took."""

    def share_of(self, part: float) -> float:
        """The share of an arm's own requests that is kept, where the arm has that part (0 to 1) of users."""
        return min(1.0, self.share / 2 / part) if part else 0.0
