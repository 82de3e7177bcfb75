"""A ledger whose store may be away: gone, or one that takes a question and does not answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import Event as Signal
from typing import Any

from fakes.ledger import FakeLedger
from registry.errors import StoreUnreachable

CALLS = frozenset({"append", "recorded", "measure", "attach", "beat", "close"})


class AwayLedger:
    """Passes everything on to a ledger in memory while its store is there."""

    def __init__(self, ledger: FakeLedger) -> None:
        self.ledger = ledger
        self.refused = 0
        """How many calls found nobody there."""
        self._gone_for = 0
        self._answers = Signal()
        self._answers.set()

    def go_away(self, *, calls: int = 1_000_000) -> None:
        """Refuse connections from now on, so many times."""
        self._gone_for = calls

    def hang(self) -> None:
        """Take what is asked and say nothing, until it answers again."""
        self._answers.clear()

    def come_back(self) -> None:
        """Answer whoever waits, and whoever comes."""
        self._gone_for = 0
        self._answers.set()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.ledger, name)
        return self._perhaps(found) if name in CALLS else found

    def _perhaps(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def asked(*args: Any, **named: Any) -> Any:
            self._answers.wait()
            if self._gone_for:
                self._gone_for -= 1
                self.refused += 1
                raise StoreUnreachable("MLflow store http://mlflow: no answer")
            return call(*args, **named)

        return asked
