"""The ledger of one delivery: an MLflow run whose tags are its events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from registry import conventions as tag
from registry.chain import Believed, ChainEntry, ChainFinding, Seal, heads_of, linked, vanished
from registry.errors import DeliveryLost, LedgerForged, StopAsked, StoreRefused, UnknownDelivery
from registry.model import Event, StoredRun
from registry.ports import Store
from registry.record import (
    ENDINGS,
    TAG_CHARACTERS,
    LedgerRecord,
    describe,
    entry_tags,
    metric_name,
    owner_of,
    read_record,
    summary_tags,
)
from tidegate.core.clock import Clock


@dataclass(eq=False)
class MlflowLedger:
    """Appends to one run. Every call returns only after the store has said that it has it.

    Several processes may write it at a time, such as one for each region of a wave. Before each write a process
    makes sure that the delivery is open and still carried by those that carried it when this process joined.
    """

    store: Store
    run: StoredRun
    """Of the delivery, as it was when this process joined; made by `MlflowDeliveries`."""
    clock: Clock
    writer: str = ""
    """Tells this process's events from those of others; empty for the one that opened the delivery."""
    carries: bool = True
    """Whether what it writes is a sign that the delivery lives; an approval from outside is none."""
    over: frozenset[str] = frozenset()
    """Marks of those that this process replaced, or found dead."""
    seal: Seal | None = None
    """Signs what this process writes; without it nobody does."""
    believed: Believed | None = None
    """Whose signatures are asked for; without it none is."""
    delivery: str = field(init=False)
    """The delivery's id."""
    owner: str = field(init=False)
    """The mark of the one who carries the delivery: this process, or those with whom it does so together."""
    _record: LedgerRecord = field(init=False)
    _next: int = field(init=False)
    _seen: dict[str, str] = field(init=False, default_factory=dict)
    """Where each event stood that this process wrote or read, by its hash."""
    _unsure: ChainEntry | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.delivery, self.owner = self.run.id, owner_of(self.run)
        self._record = read_record(self.run.tags)
        self._next = self._record.next_number

    @property
    def known(self) -> list[Event]:
        """What was written when this process last looked: at first when it joined. Asks nobody."""
        return self._record.events

    @property
    def heads(self) -> tuple[str, ...]:
        """The hashes of the last events that this process knows of. Asks nobody."""
        return heads_of(self._record.entries)

    def append(self, event: Event) -> None:
        """Write the event and the list's tags in one request, before this returns.

        Raises:
            DeliveryLost: another process has closed this delivery.
            StoreUnreachable: it is not written, or not known to be.
        """
        self._catch_up(self._check_ours())
        # A failed request may still be carried out: the same is written again, in the same place.
        if self._unsure is not None:
            again = self._unsure
            self._insist(again)
            if again.link.event == event:
                return
        number, self._next = self._next, self._next + 1
        entries, here = self._record.entries, {"delivery": self.delivery, "writer": self.writer}
        self._insist(linked(event, entries, number=number, seal=self.seal, **here))

    def recorded(self) -> list[Event]:
        """Everything that is written by now, by whomever, oldest first.

        Raises:
            LedgerForged: something was changed, inserted or removed, or is not signed by those who may write.
        """
        self._catch_up(self._now())
        findings = self.findings()
        if findings:
            more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
            hint = f"`tidegate audit verify {self.delivery}` says everything"
            raise LedgerForged(f"the ledger of delivery {self.delivery} is not genuine: {findings[0]}{more}", hint=hint)
        return self._record.events

    def findings(self) -> list[ChainFinding]:
        """What shows that the ledger is not what was written, as this process saw it last. Asks nobody."""
        gone = vanished(self._seen, self._record.entries)
        return [*self._record.findings(self.delivery, self.believed), *gone]

    def measure(self, numbers: Mapping[str, float], *, at: datetime) -> None:
        """Keep numbers as MLflow metrics; their step is in seconds since the delivery began."""
        moment = round(at.timestamp() * 1000)
        step = max(0, round((moment - self.run.started) / 1000))
        metrics = {metric_name(name): value for name, value in numbers.items()}
        self.store.measure(self.delivery, metrics, at=moment, step=step)

    def attach(self, path: Path, *, folder: str = "") -> None:
        """Keep a file, such as the report, in a folder of the run's artifacts."""
        self.store.put(self.run.artifacts, f"{folder}/{path.name}".lstrip("/"), path)

    def beat(self) -> None:
        """Say that the process lives; call it every few seconds, `LIVE_SECONDS` is the patience of others.

        Raises:
            DeliveryLost: another process has closed this delivery.
            StopAsked: somebody asks us to end it, or has deleted its run.
        """
        run = self._check_ours()
        if run.is_deleted:
            raise StopAsked(f"its run was deleted in MLflow (`mlflow runs restore --run-id {self.delivery}`)")
        self.store.log(self.delivery, tags={tag.HEARTBEAT: self.clock.now().isoformat()})
        asked = next((event for event in read_record(run.tags).events if event.kind == "stop"), None)
        if asked:
            raise StopAsked(asked.message)

    def close(self, outcome: str, reason: str) -> None:
        """The delivery is over; may be repeated after a crash.

        The run's status goes last: the one who finds it RUNNING knows that closing is not finished.
        """
        self._catch_up(self._check_ours())
        story = describe(f"{self.run.tags[tag.MODEL]} {self.run.tags[tag.VERSION]}", outcome, reason)
        # Cut: MLflow keeps 8000 characters of a tag, and older stores 5000.
        told = {tag.OUTCOME: outcome, tag.STATE: outcome, tag.REASON: reason[:TAG_CHARACTERS], tag.NOTE: story}
        self.store.log(self.delivery, tags=told)
        with TemporaryDirectory(prefix="tidegate-") as folder:
            events = Path(folder, "events.jsonl")
            events.write_text("".join(f"{event.model_dump_json()}\n" for event in self._record.events), "utf-8")
            self.attach(events)
        self.store.end_run(self.delivery, ENDINGS[outcome][0], ended=round(self.clock.now().timestamp() * 1000))

    def _insist(self, entry: ChainEntry) -> None:
        """Write it, with what lists show of it; until that is known, it is what is written next."""
        tags = entry_tags(entry) | summary_tags(entry.link.event)
        if self.carries:
            tags[tag.HEARTBEAT] = self.clock.now().isoformat()
        self._unsure = entry
        try:
            self.store.log(self.delivery, tags=tags)
        except StoreRefused:
            self._unsure = None
            raise
        self._unsure, self._seen[entry.hash] = None, entry.place
        others = (each for each in self._record.entries if each.hash != entry.hash)
        entries = sorted([*others, entry], key=lambda each: (each.link.number, each.link.writer))
        self._record = replace(self._record, entries=tuple(entries))

    def _catch_up(self, run: StoredRun) -> None:
        """Take in what other processes wrote meanwhile: what this one writes next comes after it."""
        self._record = read_record(run.tags)
        self._seen |= {entry.hash: entry.place for entry in self._record.entries}
        self._next = max(self._next, self._record.next_number)

    def _now(self) -> StoredRun:
        run = self.store.run(self.delivery)
        if run is None:
            raise UnknownDelivery(f"delivery {self.delivery} is no longer in MLflow", hint="see `tidegate status`")
        return run

    def _check_ours(self) -> StoredRun:
        run = self._now()
        if run.status != tag.NOT_ENDED:
            outcome, reason = run.tags.get(tag.OUTCOME), run.tags.get(tag.REASON)
            raise DeliveryLost(
                f"delivery {self.delivery} was closed by another process as {outcome}: {reason}",
                hint="see `tidegate status`",
            )
        if owner_of(run) != self.owner:
            raise DeliveryLost(
                f"delivery {self.delivery} is carried on by another process",
                hint="see `tidegate status`; this process stops",
            )
        return run
