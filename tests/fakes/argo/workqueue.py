"""What is to be worked on, now and later: client-go's `util/workqueue`, without threads and without limits."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from datetime import datetime

Key = tuple[str, str, str]
"""Plural, namespace, name."""


class WorkQueue:
    """Each object once, in the order in which something was first said of it."""

    def __init__(self) -> None:
        self._now: dict[Key, None] = {}
        self._later: list[tuple[datetime, Key]] = []
        self._known: set[tuple[datetime, Key]] = set()

    def __bool__(self) -> bool:
        """Whether there is work now."""
        return bool(self._now)

    @property
    def due(self) -> datetime | None:
        """When there will be work, as far as that is known."""
        return self._later[0][0] if self._later else None

    def add(self, *keys: Key) -> None:
        self.add_all(keys)

    def add_all(self, keys: Iterable[Key]) -> None:
        self._now |= dict.fromkeys(keys)

    def add_at(self, moment: datetime, key: Key) -> bool:
        """Whether that is news."""
        if (moment, key) in self._known:
            return False
        self._known.add((moment, key))
        heapq.heappush(self._later, (moment, key))
        return True

    def take(self, now: datetime) -> Key | None:
        """The next, with what is due by now; None when there is nothing to do."""
        while self._later and self._later[0][0] <= now:
            due = heapq.heappop(self._later)
            self._known.discard(due)
            self.add(due[1])
        if not self._now:
            return None
        key = next(iter(self._now))
        del self._now[key]
        return key

    def clear(self) -> None:
        self._now.clear()
        self._later.clear()
        self._known.clear()
