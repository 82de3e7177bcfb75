"""Asks whether the copies of user traffic that should reach the canary really do.

A mirror that is switched on and copies nothing looks like a canary without a single error. Nothing that
was seen of mirrored traffic may pass before most of it is proven to have arrived.

Both arms are scraped at different moments, so a window has up to a scrape interval more of one than of the
other. What is compared is what both have counted since the stage began: there the difference stays an interval's,
while window by window the smaller of two counts would lose a part of the copies again and again.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gates.evalues.share import Share
from gates.evidence import Arm, Batch
from gates.questions.base import Question
from gates.questions.histogram import pods_of

ARRIVES = 0.8
"""The least share of the copies that must arrive; some are always under way when it is counted."""


class MirrorQuestion(Question):
    """Of stable's requests a known share is copied; asks how many copies ended on the canary."""

    process: Share
    worse = "that too few copies arrive"
    fine = "that the copies arrive"

    def __init__(self, share: float, *, by_window: bool = False) -> None:
        """`share` is what is mirrored of user traffic, 0 to 1; `by_window` counts as `e-values/1` did."""
        super().__init__("mirror", needed=0)
        least, most = ARRIVES * share, min(share, 0.999)
        self._share, self._by_window = share, by_window
        self.process = Share(least, above=(least + (most - least) * 0.5, most))
        self._arrived = self._requests = 0

    def take(self, batch: Batch, seconds: float) -> None:
        requests = sum(pod.requests for pod in pods_of(batch, Arm.STABLE))
        arrived = sum(pod.requests for pod in pods_of(batch, Arm.CANARY))
        copies, missing = self._copies, self._requests - self._copies
        self._requests += requests
        self._arrived += min(arrived, requests) if self._by_window else arrived
        # What was missing may have come by now: then fewer are missing than before.
        more, fewer = self._copies - copies, self._requests - self._copies - missing
        self.process.feed(np.asarray(more), np.asarray(fewer), seconds)

    def restart(self) -> None:
        self._arrived = self._requests = 0
        self.process.restart_acceptance()

    @property
    def _copies(self) -> int:
        """No more than there were requests to copy: what is beyond was asked by somebody else, or is shown early."""
        return min(self._arrived, self._requests)

    @property
    def log_worse(self) -> float:
        # A mirror that does not work is no fault of the version: it can keep it from passing, not fail it.
        return 0.0

    @property
    def seen(self) -> int:
        return self._requests

    def describe(self) -> str:
        if not self._requests:
            return "no user request to copy"
        return f"{self._copies:,} copies of {self._requests:,} requests arrived ({self._share:.0%} are mirrored)"

    def numbers(self) -> Mapping[str, float]:
        return {"mirrored_requests": float(self._copies), "stable_requests": float(self._requests)}
