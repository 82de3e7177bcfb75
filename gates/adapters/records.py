"""Reads the load's record file, also while it grows, and offers it as a `MetricSource`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from threading import Lock

from pydantic import ValidationError

from gates.distribution import Distribution
from gates.model import ArmKey, Counts, NoData
from gates.records import RequestRecord
from gates.spec import LatencyMetric
from tidegate.core.errors import OutsideError


class RecordReader:
    """Follows one file: each call reads what was appended since the last."""

    def __init__(self, path: Path, *, offset: int = 0) -> None:
        """`offset` is where to begin, in bytes; it must be the start of a line."""
        self.path = path
        self.offset = offset

    def read_new(self) -> list[RequestRecord]:
        """The records appended since the last call; a line without its end waits for the next.

        Raises:
            OutsideError: when the file is not there, or a complete line is no record.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                data = file.read()
        except OSError as error:
            raise OutsideError(f"cannot read the load's records {self.path}: {error.strerror}") from error
        # The load writes while we read: its last line may be half there.
        complete = data[: data.rfind(b"\n") + 1]
        records = [self._parse(line) for line in complete.splitlines() if line.strip()]
        self.offset += len(complete)
        return records

    def _parse(self, line: bytes) -> RequestRecord:
        try:
            return RequestRecord.model_validate_json(line)
        except ValidationError as error:
            raise OutsideError(
                f"{self.path} has a line that is no record", hint="is another program writing to it?", detail=str(error)
            ) from error


class RecordSource:
    """A `MetricSource` over what users saw; keeps the records it has read."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """`paths` are the files of all loads whose users count."""
        self._readers = [RecordReader(path) for path in paths]
        self._records: list[RequestRecord] = []
        self._reading = Lock()
        """Regions of one wave ask at the same time, each from a thread of its own."""

    def requests(self, arm: ArmKey, since: datetime, until: datetime) -> Counts | NoData:
        """As `MetricSource`; a request without an answer names no arm and is counted for none."""
        window = list(self._window(arm, since, until))
        if not window:
            return NoData(reason=f"no user request reached {arm}")
        refused = sum(record.refused for record in window)
        failed = sum(not record.ok for record in window) - refused
        return Counts(total=len(window), failed=failed, refused=refused)

    def latencies(self, metric: LatencyMetric, arm: ArmKey, since: datetime, until: datetime) -> Distribution | NoData:
        """As `MetricSource`, from raw samples."""
        samples = [_latency(metric, record) for record in self._window(arm, since, until) if record.ok]
        known = [sample for sample in samples if sample is not None]
        return Distribution.from_samples(known) if known else NoData(reason=f"no answered user request on {arm}")

    def _window(self, arm: ArmKey, since: datetime, until: datetime) -> Iterator[RequestRecord]:
        with self._reading:
            for reader in self._readers:
                self._records.extend(reader.read_new())
            records = tuple(self._records)
        start, end = since.timestamp(), until.timestamp()
        for record in records:
            key = ArmKey(region=record.region, role=record.role, version=record.version)
            # By its end, as Prometheus counts: a window must not change after it was judged.
            if key == arm and start < record.ended <= end:
                yield record


def _latency(metric: LatencyMetric, record: RequestRecord) -> float | None:
    if metric is LatencyMetric.TTFT:
        return record.ttft_seconds
    return record.itl_mean_seconds if metric is LatencyMetric.ITL else record.duration_seconds
