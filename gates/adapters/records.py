"""Offers what the load writes down as a source of evidence."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from pathlib import Path
from threading import Lock

from gates.evidence.batch import ArmName, Batch, PodEvidence
from gates.evidence.request_record import RecordReader, RequestRecord
from gates.model import ArmKey

_ENDED = attrgetter("ended")


class RecordSource:
    """An `EvidenceSource` over what users saw."""

    settles_within = timedelta(seconds=1)
    """So long after its end a request may be written down."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """`paths` are the files of all loads whose users count."""
        self._readers = [RecordReader(path) for path in paths]
        self._by_arm: dict[ArmKey, list[RequestRecord]] = {}
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
            OutsideError: when a file cannot be read.
        """
        with self._reading:
            for reader in self._readers:
                for record in reader.read_new():
                    of = ArmKey(region=record.region, role=record.role, version=record.version)
                    # Written once they are over, so almost always the latest: appended in constant time.
                    insort(self._by_arm.setdefault(of, []), record, key=_ENDED)
            kept, ends = self._by_arm.get(arm, []), (since.timestamp(), until.timestamp())
            begin, end = (bisect_right(kept, at, key=_ENDED) for at in ends)
            return kept[begin:end]


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
