"""Events as a chain: each names what its writer had seen, by hash, so that none can be changed or taken out unseen.

Several processes write side by side, so it is a chain for each writer, joined wherever one saw the other's events.
Pure: who signs and who is believed is passed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Protocol

from registry.model import Event
from tidegate.core.model import Value

UNSIGNED_KINDS = frozenset({"approved", "refused", "stop"})
"""What people say from outside, without the key of a writer: answers, which their own proof decides, and to stop."""


class Seal(Protocol):
    """The key of a writer."""

    key: str
    """What its public half is known by."""

    def sign(self, content: bytes) -> str:
        """The signature."""
        ...


class Believed(Protocol):
    """The public keys of those who may write."""

    def knows(self, key: str) -> bool:
        """Whether it is one of them."""
        ...

    def holds(self, key: str, content: bytes, signature: str) -> bool:
        """Whether the signature is that key's for the content."""
        ...


class Link(Value):
    """An event in its place: what is hashed and signed."""

    delivery: str
    number: int
    """Greater than those of everything its writer had seen."""
    writer: str
    seq: int
    """From 1, for each writer."""
    heads: tuple[str, ...]
    """The hashes of the events that its writer had seen and that no other event names; none for the first."""
    key: str = ""
    """Of the one who signs; empty when nobody does."""
    event: Event


@dataclass(frozen=True)
class ChainEntry:
    """A link as it is kept: its text is hashed as it stands."""

    body: str
    signature: str
    link: Link

    @cached_property
    def hash(self) -> str:
        """What those that come after call it."""
        return sha256(self.body.encode()).hexdigest()

    @property
    def place(self) -> str:
        """As people read it: `12 (canary@eu-west-1/25 verdict)`."""
        return f"{self.link.number} ({self.link.event.step} {self.link.event.kind})"

    @property
    def text(self) -> str:
        """As it is kept."""
        return f"{self.body}\n{self.signature}"


class ChainFinding(Value):
    """Something that shows that the record is not what was written."""

    what: str
    """`changed`, `inserted`, `removed`, `unsigned` or `unknown key`."""
    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.where}: {self.why}"


def entry_of(text: str) -> ChainEntry | None:
    """A kept text as an entry; None when it is none."""
    body, newline, signature = text.partition("\n")
    if not newline:
        return None
    try:
        return ChainEntry(body, signature, Link.model_validate_json(body))
    except ValueError:
        return None


def heads_of(entries: Iterable[ChainEntry]) -> tuple[str, ...]:
    """The hashes that no entry names, sorted."""
    known = {entry.hash for entry in entries}
    return tuple(sorted(known - {head for entry in entries for head in entry.link.heads}))


def linked(
    event: Event, entries: Sequence[ChainEntry], *, delivery: str, number: int, writer: str, seal: Seal | None
) -> ChainEntry:
    """The event as the next entry of its writer, behind all those."""
    seq = 1 + max((entry.link.seq for entry in entries if entry.link.writer == writer), default=0)
    key = seal.key if seal else ""
    link = Link(delivery=delivery, number=number, writer=writer, seq=seq, heads=heads_of(entries), key=key, event=event)
    body = link.model_dump_json()
    return ChainEntry(body, seal.sign(body.encode()) if seal else "", link)


def examine(entries: Sequence[ChainEntry], delivery: str, believed: Believed | None = None) -> Iterator[ChainFinding]:
    """Everything that shows that the entries are not what was written, and by whom.

    Args:
        entries: sorted by their numbers.
        delivery: the id of the one that they belong to.
        believed: whose signatures count; None when no signature is asked for.
    """
    known = {entry.hash: entry for entry in entries}
    saw: dict[str, Mapping[str, int]] = {}
    for entry in entries:
        yield from _amiss(entry, known, delivery)
        before: dict[str, int] = {}
        for head in entry.link.heads:
            for writer, seq in saw.get(head, {}).items():
                before[writer] = max(seq, before.get(writer, 0))
        if entry.link.seq != 1 + before.get(entry.link.writer, 0):
            yield ChainFinding(what="inserted", where=entry.place, why="it does not follow its writer's last event")
        saw[entry.hash] = {**before, entry.link.writer: entry.link.seq}
    yield from _forks(entries)
    yield from _afterwards(entries)
    for entry in entries:
        yield from _unsigned(entry, believed)


def vanished(seen: Iterable[ChainEntry], entries: Iterable[ChainEntry]) -> Iterator[ChainFinding]:
    """What somebody has seen, such as an export, and what is not there as it was."""
    now = {entry.text for entry in entries}
    for entry in seen:
        if entry.text not in now:
            yield ChainFinding(what="removed", where=entry.place, why="it was there before, and is gone or another now")


def beheaded(noted: Iterable[str], entries: Iterable[ChainEntry]) -> Iterator[ChainFinding]:
    """Hashes that were noted elsewhere and that no event has now: it, or one that it names, is gone or another."""
    known = {entry.hash for entry in entries}
    for head in noted:
        if head not in known:
            yield ChainFinding(what="removed", where=f"head {head[:12]}", why="no event has this hash any more")


def _amiss(entry: ChainEntry, known: Mapping[str, ChainEntry], delivery: str) -> Iterator[ChainFinding]:
    link = entry.link
    if link.delivery != delivery:
        yield ChainFinding(what="inserted", where=entry.place, why=f"it was written for delivery {link.delivery}")
    for head in link.heads:
        if head not in known:
            why = "what stood before it is gone or another now"
            yield ChainFinding(what="removed", where=f"before {entry.place}", why=why)
        elif known[head].link.number >= link.number:
            yield ChainFinding(what="changed", where=entry.place, why="it stands before an event that it follows")
    opening = (link.event.step, link.event.kind) == ("delivery", "started")
    if opening and link.heads:
        yield ChainFinding(what="inserted", where=entry.place, why="a delivery starts once, and first")


def _forks(entries: Sequence[ChainEntry]) -> Iterator[ChainFinding]:
    firsts = [entry for entry in entries if not entry.link.heads]
    for entry in firsts[1:]:
        yield ChainFinding(what="inserted", where=entry.place, why=f"a second beginning, next to {firsts[0].place}")
    taken: dict[tuple[str, int], ChainEntry] = {}
    for entry in entries:
        first = taken.setdefault((entry.link.writer, entry.link.seq), entry)
        if first is not entry:
            why = f"its writer wrote something else in its place: {first.place}"
            yield ChainFinding(what="inserted", where=entry.place, why=why)


def _afterwards(entries: Sequence[ChainEntry]) -> Iterator[ChainFinding]:
    """Who closes a delivery names all that stands there; only remarks, such as of a report, come later.

    Or what nobody heard: a request to stop, by `tidegate rollback`, may be written while the delivery is closed.
    """
    closings = [each for each in entries if (each.link.event.step, each.link.event.kind) == ("delivery", "closed")]
    loose = set(heads_of(entries))
    for entry in entries:
        if (
            closings
            and entry.hash in loose
            and entry not in closings
            and entry.link.event.kind not in {"evidence", "stop"}
        ):
            yield ChainFinding(what="inserted", where=entry.place, why="the delivery was closed without it")


def _unsigned(entry: ChainEntry, believed: Believed | None) -> Iterator[ChainFinding]:
    link = entry.link
    if link.key and not entry.signature:
        yield ChainFinding(what="unsigned", where=entry.place, why="its signature was taken away")
    elif believed is None or (not link.key and link.event.kind in UNSIGNED_KINDS):
        return
    elif not link.key:
        yield ChainFinding(what="unsigned", where=entry.place, why="nobody signed it")
    elif not believed.knows(link.key):
        yield ChainFinding(what="unknown key", where=entry.place, why=f"signed by key {link.key}, which nobody trusts")
    elif not believed.holds(link.key, entry.body.encode(), entry.signature):
        yield ChainFinding(what="changed", where=entry.place, why=f"it is not what key {link.key} signed")
