"""Offers what the load writes down as a source of evidence."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from pathlib import Path
from threading import Lock

from gates.evidence.batch import ArmName, Batch, PodEvidence
from gates.evidence.request_record import RecordReader, RequestRecord
from gates.model import ArmKey
from tidegate.core.errors import OutsideError

_Kept = tuple[float, bytes]
"""When it ended, and its line: an eighth of the memory that the record takes."""
_ENDED = itemgetter(0)


class RecordSource:
    """An `EvidenceSource` over what users saw."""

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        keep: timedelta = timedelta(hours=6),
        settles_within: timedelta = timedelta(seconds=1),
    ) -> None:
        """`paths` are the files of all loads whose users count.

        Records that ended longer than `keep` before the latest are forgotten; `settles_within` is how long
        after its end a request may be written down.
        """
        self._readers = [RecordReader(path) for path in paths]
        self._keep = keep
        self.settles_within = settles_within
        self._by_arm: dict[ArmKey, list[_Kept]] = {}
        self._latest = self._forgotten_until = 0.0
        """Unix seconds: when the last one ended, and until when some that ended are gone."""
        self._reading = Lock()
        """Regions of one wave ask at the same time, each from a thread of its own."""

    def batch(self, stable: ArmKey, canary: ArmKey, since: datetime, until: datetime) -> Batch:
        """As `EvidenceSource`, with one time for each answered request."""
        windows = [
            (arm, key, self.window(key, since, until)) for arm, key in zip(ArmName, (stable, canary), strict=True)
        ]
        arms = tuple(_evidence(arm, window) for arm, _, window in windows if window)
        absent = [str(key) for _, key, window in windows if not window]
        missing = {"requests": f"no user request reached {' or '.join(absent)}"} if absent else {}
        # Whom no engine answered has no role and no version.
        if lost := len(self.window(ArmKey(region=canary.region, role="", version=""), since, until)):
            missing["unanswered"] = f"{lost} user requests in {canary.region} reached no engine and count for no arm"
        return Batch(time=until.timestamp(), source="users", arms=arms, missing=missing)

    def window(self, arm: ArmKey, since: datetime, until: datetime) -> list[RequestRecord]:
        """The requests of that arm that ended in (since, until]: by their end, as Prometheus counts them.

        Raises:
            OutsideError: when a file cannot be read, or records of that window are forgotten already.
        """
        with self._reading:
            for reader in self._readers:
                for record, line in reader.read_lines():
                    of = ArmKey(region=record.region, role=record.role, version=record.version)
                    # Written once they are over, so almost always the latest: appended in constant time.
                    insort(self._by_arm.setdefault(of, []), (record.ended, line), key=_ENDED)
                    self._latest = max(self._latest, record.ended)
            self._forget()
            if since.timestamp() < self._forgotten_until:
                hint = f"ask for the last {self._keep} at most"
                raise OutsideError(f"the load's records since {since.isoformat()} are not kept any more", hint=hint)
            kept, ends = self._by_arm.get(arm, []), (since.timestamp(), until.timestamp())
            begin, end = (bisect_right(kept, at, key=_ENDED) for at in ends)
            return [RequestRecord.model_validate_json(line) for _, line in kept[begin:end]]

    def _forget(self) -> None:
        """Drop what is too old; now and then, a tenth at once, because to shorten a list is to copy it."""
        for kept in self._by_arm.values():
            old = bisect_right(kept, self._latest - self._keep.total_seconds(), key=_ENDED)
            if old * 10 > len(kept):
                self._forgotten_until = max(self._forgotten_until, kept[old - 1][0])
                del kept[:old]


def _evidence(arm: ArmName, window: Sequence[RequestRecord]) -> PodEvidence:
    refused = sum(record.refused for record in window)
    answered = [record for record in window if record.ok]
    return PodEvidence(
        arm=arm,
        requests=len(window),
        errors=len(window) - len(answered) - refused,
        refused=refused,
        ttft=_known(record.ttft_seconds for record in answered),
        # One of a single token has no time between tokens.
        itl=_known(record.itl_mean_seconds for record in answered),
        e2e=_known(record.duration_seconds for record in answered),
    )


def _known(times: Iterable[float | None]) -> tuple[float, ...]:
    return tuple(seconds for seconds in times if seconds is not None)
