"""User requests by arm and by the time they ended, for hours: found fast, kept small, forgotten when old."""

from __future__ import annotations

from bisect import bisect_right, insort
from datetime import timedelta
from operator import itemgetter

from gates.load.records import RequestRecord
from gates.model import ArmKey

_Kept = tuple[float, bytes]
"""When it ended, and its line: an eighth of the memory that the record takes."""
_ENDED = itemgetter(0)


class RecordShelf:
    """Keeps what ended within the last while before the latest."""

    def __init__(self, keep: timedelta) -> None:
        """Records that ended longer than `keep` before the latest may be forgotten."""
        self._keep_seconds = keep.total_seconds()
        self._by_arm: dict[tuple[str, str, str], list[_Kept]] = {}
        self._latest = 0.0
        self.forgotten_until = 0.0
        """Unix seconds: of what ended by then, some is gone."""

    def put(self, record: RequestRecord, line: bytes) -> None:
        """Keep a record, `line` being its JSON."""
        # Written once they are over, so almost always the latest: appended in constant time.
        insort(
            self._by_arm.setdefault((record.region, record.role, record.version), []), (record.ended, line), key=_ENDED
        )
        self._latest = max(self._latest, record.ended)

    def forget(self) -> None:
        """Drop what is too old; now and then, a tenth at once, because to shorten a list is to copy it."""
        horizon = self._latest - self._keep_seconds
        for kept in self._by_arm.values():
            old = bisect_right(kept, horizon, key=_ENDED)
            if old * 10 > len(kept):
                self.forgotten_until = max(self.forgotten_until, kept[old - 1][0])
                del kept[:old]

    def between(self, arm: ArmKey, since: float, until: float) -> list[RequestRecord]:
        """The requests of that arm that ended in (since, until], in that order."""
        kept = self._by_arm.get((arm.region, arm.role, arm.version), [])
        found = kept[bisect_right(kept, since, key=_ENDED) : bisect_right(kept, until, key=_ENDED)]
        return [RequestRecord.model_validate_json(line) for _, line in found]
