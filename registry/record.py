"""A delivery as its MLflow run has it: who carries it, and its events as tags."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

from pydantic import Field

from registry import conventions as tag
from registry.chain import Believed, ChainEntry, ChainFinding, entry_of, examine
from registry.errors import LedgerForged
from registry.model import DeliverySummary, Event, StepId, StoredRun
from tidegate.core.model import Value
from tidegate.core.text import foreign, table_cell

TAG_CHARACTERS = 4000
"""MLflow cuts a run's tag at 8000 characters without a word, and older stores at 5000."""
MAX_PARTS = 90
"""All parts of an event are written in one request, which may carry 100 tags."""
ENDINGS = {
    "delivered": ("FINISHED", "was delivered"),
    "rolled-back": ("FAILED", "was rolled back"),
    "inconclusive": ("FAILED", "was rolled back as inconclusive"),
    "failed": ("FAILED", "was rolled back after a failure"),
    "interrupted": ("KILLED", "was interrupted"),
}
"""Each outcome, as MLflow's list of runs shows it, and in words."""

_PART = re.compile(re.escape(tag.EVENT_PREFIX) + r"(\d+)\.(\d+)of(\d+)(?:\.(\w+))?")
_NOT_IN_NAMES = re.compile(r"[^\w.\- :/]", re.ASCII)


class Carrier(Value):
    """The process that carries a delivery, as a tag or a parameter of its run says: the first one to set it."""

    mark: str = Field(default_factory=lambda: uuid4().hex)
    """Its own; nobody else has it."""
    at: datetime
    host: str
    pid: int = Field(gt=0, lt=2**31)
    machine: str
    """As `DeliverySummary.machine`."""
    patience_seconds: float = Field(default=0.0, ge=0, le=366 * 86400.0)
    key: str | None = None


def claims_of(run: StoredRun) -> list[str]:
    """What those wrote who carried a delivery on, in their order."""
    return [run.params[key] for key in sorted(run.params) if key.startswith(tag.OWNER_PREFIX)]


def owner_of(run: StoredRun) -> str:
    """The mark of the one who carries a delivery by its run.

    Raises:
        LedgerForged: somebody else wrote there.
    """
    with foreign(lambda why: LedgerForged(f"who carries delivery {run.id} cannot be read: {why}")):
        return _carrier(run).mark


def _carrier(run: StoredRun) -> Carrier:
    return Carrier.model_validate_json([run.tags[tag.CARRIER], *claims_of(run)][-1])


def summary_of(run: StoredRun) -> DeliverySummary:
    """What a delivery's run says of it.

    Raises:
        LedgerForged: it is none of a delivery. Anybody who may write to MLflow may write anything there.
    """
    hint = "no command of tidegate wrote it so; see the run in MLflow, and who may write there"
    with foreign(lambda why: LedgerForged(f"run {run.id} cannot be read as a delivery: {why}", hint=hint)):
        tags, carrier = run.tags, _carrier(run)
        heartbeat = datetime.fromisoformat(tags[tag.HEARTBEAT])
        if heartbeat.tzinfo is None:
            raise ValueError(f"{tag.HEARTBEAT}: found a time without a zone")
        ended = run.ended if run.status != tag.NOT_ENDED else None
        return DeliverySummary(
            id=run.id,
            name=tags[tag.MODEL],
            version=tags[tag.VERSION],
            champion=tags.get(tag.CHAMPION),
            on_trial=tags.get(tag.ON_TRIAL, ""),
            in_production=tags.get(tag.IN_PRODUCTION, ""),
            started=datetime.fromtimestamp(run.started / 1000, UTC),
            ended=datetime.fromtimestamp(ended / 1000, UTC) if ended else None,
            outcome=tags.get(tag.OUTCOME),
            reason=tags.get(tag.REASON),
            last_step=tags.get(tag.LAST_STEP),
            heartbeat=max(heartbeat, carrier.at),
            owner=carrier.mark,
            **carrier.model_dump(include={"host", "pid", "machine", "patience_seconds", "key"}),
        )


@dataclass(frozen=True)
class LedgerRecord:
    """A delivery's events as its run has them."""

    entries: tuple[ChainEntry, ...] = ()
    """Those of the chain."""
    strange: tuple[ChainFinding, ...] = ()
    """What stands where events stand and is none."""
    next_number: int = 1
    """Of the next event: also past one that was only half written."""

    @property
    def events(self) -> list[Event]:
        """In their order."""
        return [entry.link.event for entry in self.entries]

    def findings(self, delivery: str, believed: Believed | None = None) -> list[ChainFinding]:
        """Everything that shows that this is not what was written."""
        return [*self.strange, *examine(self.entries, delivery, believed)]


def entry_tags(entry: ChainEntry) -> dict[str, str]:
    """The tags that hold an entry of the chain, in parts when it is long: `mlflow.tidegate.event.0007.1of1`.

    Its writer tells apart processes that write at the same time, as those of two regions of a wave do: MLflow has
    no compare-and-set, so two of them may choose the same number, and neither must write over the other.

    Raises:
        ValueError: it is too long for one request.
    """
    number, text, writer = entry.link.number, entry.text, entry.link.writer
    parts = [text[start : start + TAG_CHARACTERS] for start in range(0, len(text), TAG_CHARACTERS)]
    if len(parts) > MAX_PARTS:
        raise ValueError(f"an event of {len(text)} characters; the ledger keeps at most {MAX_PARTS * TAG_CHARACTERS}")
    end = f".{writer}" if writer else ""
    return {f"{tag.EVENT_PREFIX}{number:04}.{index}of{len(parts)}{end}": part for index, part in enumerate(parts, 1)}


def read_record(tags: Mapping[str, str]) -> LedgerRecord:
    """Everything in a run's tags that is an event, or stands where events stand.

    An event with a part missing was never acknowledged to its writer, so it did not happen.
    """
    parts: dict[tuple[int, str, int], dict[int, str]] = defaultdict(dict)
    for key, value in tags.items():
        if match := _PART.fullmatch(key):
            number, index, count = map(int, match.groups()[:3])
            parts[number, match[4] or "", count][index] = value
    entries, strange = list[ChainEntry](), list[ChainFinding]()
    for (number, writer, count), texts in sorted(parts.items()):
        if len(texts) != count:
            continue
        entry = entry_of("".join(text for _, text in sorted(texts.items())))
        if entry is None:
            strange.append(ChainFinding(what="inserted", where=str(number), why="it is no event of a chain"))
        elif (entry.link.number, entry.link.writer) != (number, writer):
            strange.append(entry.finding("changed", f"it stands at {number}, another's place"))
        else:
            entries.append(entry)
    return LedgerRecord(tuple(entries), tuple(strange), 1 + max((number for number, *_ in parts), default=0))


def metric_name(name: str) -> str:
    """`name` with what MLflow refuses in metric names replaced by dots."""
    return _NOT_IN_NAMES.sub(".", name)


def describe(title: str, outcome: str, reason: str) -> str:
    """How the delivery ended, in one sentence of Markdown, as the run's description."""
    return f"**{table_cell(f'{title} {ENDINGS[outcome][1]}: {reason[:1000]}')}**\n"


def summary_tags(event: Event) -> dict[str, str]:
    """What lists of runs show of the last event."""
    region = StepId.parsed(event.step).region
    there = {tag.REGION_PREFIX + region: f"{event.step} {event.kind}"} if region else {}
    return {tag.LAST_STEP: event.step, **there}
