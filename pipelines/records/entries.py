"""What is written down of a delivery, as data: it can wait in a queue, and on a disk for another process."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from pipelines.ports import Event, Ledger, Registry
from registry.errors import StoreRefused, StoreUnreachable
from registry.model import ModelVersion
from tidegate.core.model import Value


class Said(Value):
    """An event."""

    kind: Literal["said"] = "said"
    event: Event


class Measured(Value):
    """Numbers that become time series."""

    kind: Literal["measured"] = "measured"
    numbers: Mapping[str, float]
    at: datetime


class Attached(Value):
    """A file to keep beside the events, as it is when its turn comes."""

    kind: Literal["attached"] = "attached"
    path: Path
    folder: str = ""


class Marked(Value):
    """Tags on the model version."""

    kind: Literal["marked"] = "marked"
    version: ModelVersion
    tags: Mapping[str, str]


class Reinstated(Value):
    """The version is champion again."""

    kind: Literal["reinstated"] = "reinstated"
    version: ModelVersion


class Closed(Value):
    """The delivery is over."""

    kind: Literal["closed"] = "closed"
    outcome: str
    reason: str


Entry = Said | Measured | Attached | Marked | Reinstated | Closed

ENTRY: TypeAdapter[Entry] = TypeAdapter(Annotated[Entry, Field(discriminator="kind")])


def carry_out(entry: Entry, ledger: Ledger, registry: Registry | None, *, again: bool) -> None:
    """Write it. `again`: it may have been written by an attempt before whose answer was lost, and must not be twice.

    Raises:
        TidegateError: it is not written, or not known to be.
    """
    match entry:
        case Said(event=event):
            # An event has its time to the microsecond: one like it is this one.
            if not (again and event in ledger.recorded()):
                ledger.append(event)
        case Measured(numbers=numbers, at=at):
            ledger.measure(numbers, at=at)
        case Attached(path=path, folder=folder):
            ledger.attach(path, folder=folder)
        case Marked(version=version, tags=tags) if registry:
            registry.mark(version, tags)
        case Reinstated(version=version) if registry:
            registry.reinstate(version)
        case Closed(outcome=outcome, reason=reason):
            ledger.close(outcome, reason)
        case _:
            raise AssertionError(f"nobody gave a registry, and one is written to: {entry.kind}")


def passes(error: Exception) -> bool:
    """Whether the same may succeed later: the store was not there. One that says no goes on saying so."""
    return isinstance(error, StoreUnreachable) and not isinstance(error, StoreRefused)
