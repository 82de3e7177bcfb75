"""Writes what processes before this one could not: they ended while the store was away."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from pipelines.ports import Ledger, Registry
from pipelines.records.entries import Entry, Said, carry_out, passes
from pipelines.records.spool import SUFFIX, left_alone, read_entries
from registry.errors import UnknownDelivery
from registry.model import DeliverySummary
from tidegate.core.errors import TidegateError


class Ledgers(Protocol):
    """Where ledgers of deliveries are that other processes opened."""

    def summary(self, delivery: str) -> DeliverySummary:
        """Raises UnknownDelivery."""
        ...

    def join(self, delivery: str, *, carries: bool = True) -> Ledger:
        """One to append to; `carries` when that is a sign of life."""
        ...


def write_leftovers(folder: Path, ledgers: Ledgers, registry: Registry, complain: Callable[[str], None]) -> None:
    """Write every file of which no process lives, and remove it. One that cannot be written stays, and is told."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        with left_alone(path) as ours:
            if not ours:
                continue
            try:
                for problem in _written(path, ledgers, registry):
                    complain(problem)
            except UnknownDelivery:
                # It is another store's; whoever names that will write it.
                continue
            except TidegateError as error:
                complain(f"records of a delivery wait in {path}: {error}")
                continue
            path.unlink(missing_ok=True)


def _written(path: Path, ledgers: Ledgers, registry: Registry) -> Iterator[str]:
    """Write it in order, each entry once; yields what the store refuses."""
    entries, delivery = list(read_entries(path)), path.name.partition(".")[0]
    if not entries:
        return
    ledger = ledgers.join(delivery, carries=False)
    if ledgers.summary(delivery).ended is not None:
        yield from _too_late(path, ledger, entries)
        return
    for entry in entries:
        try:
            carry_out(entry, ledger, registry, again=True)
        except (TidegateError, OSError) as error:
            if passes(error):
                raise
            yield f"delivery {delivery}: a record of it was refused: {error}"


def _too_late(path: Path, ledger: Ledger, entries: Sequence[Entry]) -> Iterator[str]:
    """Somebody closed the delivery meanwhile: nothing is added to it, and nothing is lost."""
    known = ledger.recorded()
    if all(entry.event in known for entry in entries if isinstance(entry, Said)):
        return
    kept = path.with_suffix(".refused")
    kept.write_bytes(path.read_bytes())
    yield f"delivery {ledger.delivery} was closed before its last records could be written; they are in {kept}"
