"""A listener of a delivery whose canary turns bad at 50 %, which notes when the verdict came."""

from __future__ import annotations

import time
from collections.abc import Callable

from registry.model import Event


class FailingCanary:
    """Calls `at_half` once that many regions are at 50 %, and `at_verdict` at the first verdict that fails."""

    def __init__(
        self, regions: int, at_half: Callable[[], object], at_verdict: Callable[[], object] = lambda: None
    ) -> None:
        self._missing, self._at_half, self._at_verdict = regions, at_half, at_verdict
        self.verdict_at = 0.0

    def on_event(self, event: Event) -> None:
        if event.kind == "traffic" and event.step.endswith("/50"):
            self._missing -= 1
            if self._missing == 0:
                self._at_half()
        if event.data.get("outcome") == "fail" and not self.verdict_at:
            self.verdict_at = time.monotonic()
            self._at_verdict()
