"""What every comparison has in common: evidence that the canary is worse, evidence that it is fine, words for both."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping

from gates.evalues.mixture import Comparison
from gates.evidence import Batch


class Question(ABC):
    """One comparison of both arms on one source, asked again with every batch."""

    kind: str
    """What is compared, when a gate compares several things: `failed`, `refused`, `coverage`."""
    worse = "that it is worse than tolerated"
    fine = "that it is within the margin"
    sample = "requests"
    """What `seen` counts."""

    process: Comparison | None = None
    """What adds up the evidence; None while nothing has begun."""

    def __init__(self, kind: str, *, needed: int) -> None:
        """`needed` is what must have been seen of the canary before a pass, however clear the evidence."""
        self.kind, self.needed = kind, needed
        self.missing = ""
        """Why the last batch had nothing for this question, when it said so."""

    @abstractmethod
    def take(self, batch: Batch, seconds: float) -> None:
        """Learn from one batch, so many seconds after the one before."""

    @abstractmethod
    def restart(self) -> None:
        """Ask anew whether the canary is fine; what speaks against it stays."""

    @property
    def log_worse(self) -> float:
        """Natural logarithm of the evidence that the canary is worse."""
        return float(self.process.log_worse) if self.process else 0.0

    @property
    def log_fine(self) -> float:
        """Natural logarithm of the evidence that it is within the margin."""
        return float(self.process.log_fine) if self.process else 0.0

    @property
    @abstractmethod
    def seen(self) -> int:
        """Requests of the canary, or pairs, since the last restart."""

    @abstractmethod
    def describe(self) -> str:
        """Both arms, the difference, what is allowed; or what is missing."""

    @abstractmethod
    def numbers(self) -> Mapping[str, float]:
        """What the description rests on; names carry their unit."""

    def beside(self) -> Mapping[str, float]:
        """What is measured beside, for curves; the description does not rest on it."""
        return {}


def as_ratio(log_evidence: float) -> float:
    """Evidence as a number, within what JSON and a plot can bear."""
    return math.exp(min(max(log_evidence, math.log(1e-12)), math.log(1e12)))


def as_odds(log_evidence: float) -> str:
    """Evidence as a person says it: `340:1`, or `1:12` when it speaks for the opposite."""
    # Beyond a million the number says nothing more.
    if log_evidence > math.log(1e6):
        return "over 1,000,000:1"
    if log_evidence < -math.log(1e6):
        return "under 1:1,000,000"
    ratio = math.exp(abs(log_evidence))
    shown = f"{ratio:,.0f}" if ratio >= 9.95 else f"{ratio:.2g}"
    return f"{shown}:1" if log_evidence >= 0 else f"1:{shown}"


def as_time(seconds: float) -> str:
    """A latency: `210 ms`, `1.25 s`."""
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.2g} ms"
