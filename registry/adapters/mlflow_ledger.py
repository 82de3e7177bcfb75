"""The ledger of one delivery: an MLflow run whose tags are its events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from registry.adapters.mlflow_store import Store
from registry.chain import Believed, ChainEntry, ChainFinding, Seal, heads_of, linked, vanished
from registry.conventions import HEARTBEAT, MODEL, NOTE, OUTCOME, OWNER, REASON, STATE, VERSION
from registry.errors import DeliveryLost, LedgerForged, StopAsked, StoreRefused, UnknownDelivery
from registry.model import Event, StoredMetric, StoredRun
from registry.record import (
    describe,
    entry_tags,
    jsonl,
    metric_name,
    next_number,
    read_record,
    summary_tags,
)
from tidegate.core.clock import Clock

NOT_ENDED = "RUNNING"
"""MLflow's status of a run that nobody has ended."""
RUN_STATUS = {
    "delivered": "FINISHED",
    "rolled-back": "FAILED",
    "inconclusive": "FAILED",
    "failed": "FAILED",
    "interrupted": "KILLED",
}
"""How MLflow's list of runs shows each outcome."""


class MlflowLedger:
    """Appends to one run. Every call returns only after the store has said that it has it.

    Several processes may write it at a time, such as one for each region of a wave. Before each write a process
    makes sure that the delivery is open and still carried by those that carried it when this process joined.
    """

    def __init__(
        self,
        store: Store,
        run: StoredRun,
        clock: Clock,
        *,
        writer: str = "",
        carries: bool = True,
        owner: str | None = None,
        over: frozenset[str] = frozenset(),
        seal: Seal | None = None,
        believed: Believed | None = None,
    ) -> None:
        """`run` is a delivery's, made by `MlflowDeliveries`.

        Args:
            store: that the run is in.
            run: as it was when this process joined.
            clock: for its signs of life.
            writer: tells this process's events from those of others; empty for the one that opened the delivery.
            carries: whether what it writes is a sign that the delivery lives; an approval from outside is none.
            owner: the mark that this process made itself; by default, that of the one who carried it when it joined.
            over: marks of those that this process replaced, or found dead.
            seal: signs what this process writes; without it nobody does.
            believed: whose signatures are asked for; without it none is.
        """
        self.delivery: str = run.id
        self._store, self._run = store, run
        self._clock = clock
        self._title = f"{run.tags[MODEL]} {run.tags[VERSION]}"
        # Never read back by the one who wrote it: it might be that of one who came a moment later.
        self._owner = owner or run.tags.get(OWNER)
        self.over = over
        self._writer, self._carries = writer, carries
        self._seal, self._believed = seal, believed
        self._record, self._next = read_record(run.tags), next_number(run.tags)
        self._seen: dict[str, ChainEntry] = {}
        self._unsure: ChainEntry | None = None

    @property
    def owner(self) -> str:
        """The mark of the one who carries the delivery: this process, or those with whom it does so together."""
        return self._owner or self.delivery

    @property
    def known(self) -> list[Event]:
        """What was written when this process last looked: at first when it joined. Asks nobody."""
        return self._record.events

    @property
    def heads(self) -> tuple[str, ...]:
        """The hashes of the last events that this process knows of. Asks nobody."""
        return heads_of(self._record.entries)

    def append(self, event: Event) -> None:
        """Write the event, the list's tags and the story in one request, before this returns.

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
        entries = self._record.entries
        self._insist(
            linked(event, entries, delivery=self.delivery, number=number, writer=self._writer, seal=self._seal)
        )

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
        gone = vanished(self._seen.values(), self._record.entries)
        return [*self._record.findings(self.delivery, self._believed), *gone]

    def measure(self, numbers: Mapping[str, float], *, at: datetime) -> None:
        """Keep numbers as MLflow metrics; their step is in seconds since the delivery began."""
        step = max(0, round(at.timestamp() - self._run.started / 1000))
        moment = round(at.timestamp() * 1000)
        metrics = [
            StoredMetric(name=metric_name(name), value=value, at=moment, step=step) for name, value in numbers.items()
        ]
        self._store.runs.log(self.delivery, metrics=metrics)

    def attach(self, path: Path, *, folder: str = "") -> None:
        """Keep a file, such as the report, in a folder of the run's artifacts."""
        self._store.artifacts.upload(self._run, path, folder)

    def beat(self) -> None:
        """Say that the process lives; call it every few seconds, `LIVE_SECONDS` is the patience of others.

        Raises:
            DeliveryLost: another process has closed this delivery.
            StopAsked: somebody asks us to end it, or has deleted its run.
        """
        run = self._check_ours()
        if run.is_deleted:
            raise StopAsked(f"its run was deleted in MLflow (`mlflow runs restore --run-id {self.delivery}`)")
        self._write(self._heartbeat())
        asked = next((event for event in read_record(run.tags).events if event.kind == "stop"), None)
        if asked:
            raise StopAsked(asked.message)

    def close(self, outcome: str, reason: str) -> None:
        """The delivery is over; may be repeated after a crash.

        The run's status goes last: the one who finds it RUNNING knows that closing is not finished.

        Raises:
            ValueError: `outcome` is none of `RUN_STATUS`.
        """
        if outcome not in RUN_STATUS:
            raise ValueError(f"outcome {outcome!r}; expected one of {', '.join(RUN_STATUS)}")
        self._catch_up(self._check_ours())
        story = describe(self._title, self._record.events, f"{outcome}: {reason}")
        # Cut: MLflow keeps 8000 characters of a tag, and older stores 5000.
        self._write({OUTCOME: outcome, STATE: outcome, REASON: reason[:4000], NOTE: story})
        with TemporaryDirectory(prefix="tidegate-") as folder:
            events = Path(folder) / "events.jsonl"
            events.write_text(jsonl(self._record.events), encoding="utf-8")
            self._store.artifacts.upload(self._run, events, "")
        ended = round(self._clock.now().timestamp() * 1000)
        self._store.runs.end_run(self.delivery, RUN_STATUS[outcome], ended=ended)

    def _heartbeat(self) -> dict[str, str]:
        return {HEARTBEAT: self._clock.now().isoformat()}

    def _write(self, tags: Mapping[str, str]) -> None:
        self._store.runs.log(self.delivery, tags=tags)

    def _put(self, tags: Mapping[str, str], event: Event) -> None:
        """One event, with what lists and the story show of it, in one request."""
        events = self._record.events
        told = events if event in events else [*events, event]
        self._write(dict(tags) | summary_tags(self._title, told) | (self._heartbeat() if self._carries else {}))

    def _insist(self, entry: ChainEntry) -> None:
        """Write it; until that is known, it is what is written next."""
        tags = entry_tags(entry)
        self._unsure = entry
        try:
            self._put(tags, entry.link.event)
        except StoreRefused:
            self._unsure = None
            raise
        self._unsure, self._seen[entry.hash] = None, entry
        others = (each for each in self._record.entries if each.hash != entry.hash)
        entries = sorted([*others, entry], key=lambda each: (each.link.number, each.link.writer))
        self._record = replace(self._record, entries=tuple(entries))

    def _catch_up(self, run: StoredRun) -> None:
        """Take in what other processes wrote meanwhile: what this one writes next comes after it."""
        self._record = read_record(run.tags)
        self._seen |= {entry.hash: entry for entry in self._record.entries}
        self._next = max(self._next, next_number(run.tags))

    def _now(self) -> StoredRun:
        run = self._store.runs.run(self.delivery)
        if run is None:
            raise UnknownDelivery(f"delivery {self.delivery} is no longer in MLflow", hint="see `tidegate status`")
        return run

    def _check_ours(self) -> StoredRun:
        run = self._now()
        if run.status != NOT_ENDED:
            outcome, reason = run.tags.get(OUTCOME), run.tags.get(REASON)
            raise DeliveryLost(
                f"delivery {self.delivery} was closed by another process as {outcome}: {reason}",
                hint="see `tidegate status`",
            )
        if run.tags.get(OWNER) != self._owner:
            raise DeliveryLost(
                f"delivery {self.delivery} is carried on by another process",
                hint="see `tidegate status`; this process stops",
            )
        return run
