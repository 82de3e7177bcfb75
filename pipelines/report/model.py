"""The nouns of the report: a delivery as the ledger kept it, and what users met while it ran."""

from __future__ import annotations

from functools import cached_property

from gates.load.records import RequestRecord
from pipelines.ports import Event
from pipelines.story import Story, tell
from tidegate.core.model import Value


class DeliveryRecord(Value):
    """One delivery: its id and all its events, in their order."""

    id: str
    events: tuple[Event, ...]

    @cached_property
    def story(self) -> Story:
        return tell(self.events)

    @property
    def took_seconds(self) -> float:
        """Until its end, or until its last event when it has none; 0 when nothing was recorded."""
        return self.story.elapsed_seconds(self.events[-1].at) if self.events else 0.0


class Arm(Value):
    """What users met on one version."""

    version: str
    canary: bool
    """Whether this is the version that was being delivered."""
    records: tuple[RequestRecord, ...]

    @property
    def failed(self) -> int:
        return sum(not record.ok for record in self.records)

    @property
    def cut(self) -> int:
        return sum(record.cut for record in self.records)

    def ttft_seconds(self) -> list[float]:
        """Of the requests that were answered in full."""
        return [record.ttft_seconds for record in self.records if record.ok and record.ttft_seconds is not None]

    def itl_seconds(self) -> list[float]:
        """Mean seconds between tokens, of the requests that were answered in full."""
        return [record.itl_mean_seconds for record in self.records if record.ok and record.itl_mean_seconds is not None]
