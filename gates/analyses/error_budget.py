"""How fast an error budget is spent, over sliding windows, and how surely that is no chance."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from datetime import timedelta

import numpy as np

from gates.evidence.batch import Events
from gates.model import NoData
from gates.stats.e_process import Array, Onset, Product
from tidegate.core.model import Value

BURNING_ODDS = (1.5, 3.0, 10.0, 100.0)
"""Alternatives to the share that is just no burn, as odds; violent burns are told as fast as slow ones."""
FINE_ODDS = (0.8, 0.5, 0.2, 0.02)
EVEN = (0.25, 0.25, 0.25, 0.25)


class EventSample(Value):
    """What was seen at one look."""

    time: float
    """Unix seconds; looks rise in time."""
    seconds: float
    """How long since the look before."""
    events: Events | NoData


class SlidingWindow:
    """The looks of the last while."""

    def __init__(self, longest: timedelta) -> None:
        """Nothing is remembered beyond `longest`."""
        self._longest = longest.total_seconds()
        self._looks: deque[tuple[float, Events]] = deque()
        self._time = -math.inf

    def take(self, time: float, events: Events | None) -> None:
        """One more look; None when it saw nothing, which moves the windows on all the same."""
        self._time = time
        while self._looks and self._looks[0][0] <= time - self._longest:
            self._looks.popleft()
        if events is not None:
            self._looks.append((time, events))

    def within(self, window: timedelta) -> Events:
        """What happened in the window that ends with the last look; a look that began before it counts whole."""
        since = self._time - window.total_seconds()
        return summed(events for time, events in self._looks if time > since)


class WindowPair:
    """A pair of windows, and the evidence that its burn is no chance."""

    def __init__(self, *, short: timedelta, long: timedelta, factor: float, budget: float) -> None:
        """`budget` is the share of events that may be bad; a burn spends it `factor` times too fast."""
        self.short, self.long, self.factor = short, long, factor
        self.bound = factor * budget
        """The share of bad events that is just no burn."""
        self._worse = Onset(EVEN)

    def feed(self, events: Events, seconds: float) -> None:
        """One look of so many seconds."""
        self._worse.feed(_log_ratio(self.bound, BURNING_ODDS, events), seconds)

    def is_burning(self, recent: SlidingWindow) -> bool:
        """Whether the bad share is above the bound in both windows, by chance or not."""
        found = (recent.within(window) for window in (self.short, self.long))
        return all(events.bad > self.bound * events.total for events in found)

    @property
    def log_evidence(self) -> float:
        """Natural logarithm of the evidence that the share is above the bound, since whatever moment."""
        return float(self._worse.log_evidence)


class NoBurnEvidence:
    """The evidence that the bad share is below a bound."""

    def __init__(self, bound: float) -> None:
        """`bound` is a share of bad events."""
        self._bound = bound
        self._fine = Product(EVEN)
        self.log_best = -math.inf
        """Natural logarithm of the clearest evidence so far."""

    def feed(self, events: Events) -> None:
        """One look."""
        self._fine.feed(_log_ratio(self._bound, FINE_ODDS, events))
        self.log_best = max(self.log_best, self.log_evidence)

    @property
    def log_evidence(self) -> float:
        """Natural logarithm of the evidence as it is now."""
        return float(self._fine.log_evidence)


def summed(events: Iterable[Events]) -> Events:
    """All of them together."""
    found = list(events)
    return Events(total=sum(each.total for each in found), bad=sum(each.bad for each in found))


def _log_ratio(bound: float, odds: tuple[float, ...], events: Events) -> Array:
    """Of shares with so many times the odds of the bound, against the bound; its mean is at most 1 if that holds."""
    shares = np.asarray(odds) * bound / (1 - bound + np.asarray(odds) * bound)
    good = events.total - events.bad
    return np.asarray(events.bad * np.log(shares / bound) + good * (np.log1p(-shares) - math.log1p(-bound)))
