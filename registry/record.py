"""A delivery's record as MLflow keeps it: events as tags, and the story that its UI shows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from registry.chain import Believed, ChainEntry, ChainFinding, entry_of, examine
from registry.conventions import EVENT_PREFIX, LAST_STEP, NOTE, REGION_PREFIX
from registry.model import Event, StepId
from tidegate.core.text import code_cell, table_cell

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
STORY_CHARACTERS = 7500
"""Of the description, which is a tag as well; below the 8000 at which MLflow cuts."""

_PART = re.compile(re.escape(EVENT_PREFIX) + r"(\d+)\.(\d+)of(\d+)(?:\.(\w+))?")
_NOT_IN_NAMES = re.compile(r"[^\w.\- :/]", re.ASCII)


@dataclass(frozen=True)
class LedgerRecord:
    """A delivery's events as its run has them."""

    entries: tuple[ChainEntry, ...] = ()
    """Those of the chain."""
    strange: tuple[ChainFinding, ...] = ()
    """What stands where events stand and is none."""

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
    return {f"{EVENT_PREFIX}{number:04}.{index}of{len(parts)}{end}": part for index, part in enumerate(parts, 1)}


def read_record(tags: Mapping[str, str]) -> LedgerRecord:
    """Everything in a run's tags that is an event, or stands where events stand.

    An event with a part missing was never acknowledged to its writer, so it did not happen.
    """
    entries: list[ChainEntry] = []
    strange: list[ChainFinding] = []
    for (number, writer), text in _texts(tags):
        entry = entry_of(text)
        if entry and (entry.link.number, entry.link.writer) == (number, writer):
            entries.append(entry)
        elif entry:
            strange.append(
                ChainFinding(what="changed", where=entry.place, why=f"it stands at {number}, another's place")
            )
        else:
            strange.append(ChainFinding(what="inserted", where=str(number), why="it is no event of a chain"))
    return LedgerRecord(tuple(entries), tuple(strange))


def _texts(tags: Mapping[str, str]) -> Iterator[tuple[tuple[int, str], str]]:
    """What is whole, by number and writer."""
    parts: dict[tuple[int, str], dict[int, str]] = {}
    wanted: dict[tuple[int, str], int] = {}
    for key, value in tags.items():
        if match := _PART.fullmatch(key):
            number, index, count = map(int, match.groups()[:3])
            place = number, match[4] or ""
            parts.setdefault(place, {})[index] = value
            wanted[place] = count
    for place in sorted(parts):
        if len(parts[place]) == wanted[place]:
            yield place, "".join(text for _, text in sorted(parts[place].items()))


def next_number(tags: Mapping[str, str]) -> int:
    """The number of the next event; also past one that was only half written."""
    numbers = [int(match[1]) for match in map(_PART.fullmatch, tags) if match]
    return max(numbers, default=0) + 1


def metric_name(name: str) -> str:
    """`name` with what MLflow refuses in metric names replaced by dots."""
    return _NOT_IN_NAMES.sub(".", name)


def jsonl(events: Iterable[Event]) -> str:
    """One event a line, as `events.jsonl` holds them."""
    return "".join(event.model_dump_json() + "\n" for event in events)


def describe(title: str, events: Sequence[Event], outcome: str = "", reason: str = "") -> str:
    """The delivery's story in Markdown, newest event last, short enough for one tag; how it ended is said first.

    When it grows too long, events after the first are left out, the oldest of them first.
    """
    state = f"{ENDINGS[outcome][1]}: {reason[:1000]}" if outcome else "is being delivered"
    head = f"**{table_cell(f'{title} {state}')}**\n\n| time (UTC) | step | | |\n|---|---|---|---|\n"
    rows = [_row(event) for event in events]
    first, room = rows[:1], STORY_CHARACTERS - len(head) - sum(map(len, rows[:1])) - 100
    last: list[str] = []
    for row in reversed(rows[1:]):
        room -= len(row)
        if room < 0:
            break
        last.insert(0, row)
    left_out = len(rows) - len(first) - len(last)
    gap = f"| | | | *{left_out} events left out here; all are in the tags and in events.jsonl* |\n" if left_out else ""
    return head + "".join([*first, gap, *last])


def summary_tags(title: str, events: Sequence[Event]) -> dict[str, str]:
    """Everything besides the event itself that changes when one is appended."""
    last = events[-1]
    region = StepId.parsed(last.step).region
    there = {REGION_PREFIX + region: f"{last.step} {last.kind}"} if region else {}
    return {LAST_STEP: last.step, NOTE: describe(title, events), **there}


def _row(event: Event) -> str:
    message = table_cell(event.message[:300])
    kind = f"**{event.kind}**" if event.kind in ("verdict", "failed", "closed") else table_cell(event.kind)
    outcome = event.data.get("outcome") if event.kind == "verdict" else None
    gate = table_cell(str(event.data.get("gate")))
    told = f"{gate}: **{table_cell(str(outcome))}**, {message}" if outcome else message
    return f"| {event.at:%H:%M:%S} | {code_cell(event.step)} | {kind} | {told} |\n"
