"""Events as a chain: each names what its writer had seen, by hash, so that none can be changed or taken out unseen.

Several processes write side by side, so it is a chain for each writer, joined wherever one saw the other's events.
Pure: who signs and who is believed is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import NamedTuple

from registry.model import Event
from tidegate.core.model import Value

UNSIGNED_KINDS = frozenset({"approved", "refused", "stop"})
"""What people say from outside, without the key of a writer: answers, which their own proof decides, and to stop."""

Believed = Mapping[str, Callable[[bytes, str], bool]]
"""Of those who may write: whether a signature is theirs for a content, by what their public key is known by."""


class Seal(NamedTuple):
    """The key of a writer."""

    key: str
    """What its public half is known by."""
    sign: Callable[[bytes], str]


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


class ChainFinding(Value):
    """Something that shows that the record is not what was written."""

    what: str
    """`changed`, `inserted`, `removed`, `unsigned` or `unknown key`."""
    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.where}: {self.why}"


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

    def finding(self, what: str, why: str) -> ChainFinding:
        """What is wrong with it."""
        return ChainFinding(what=what, where=self.place, why=why)


def entry_of(text: str) -> ChainEntry | None:
    """A kept text as an entry; None when it is none."""
    body, newline, signature = text.partition("\n")
    try:
        return ChainEntry(body, signature, Link.model_validate_json(body)) if newline else None
    except ValueError:
        return None


def heads_of(entries: Iterable[ChainEntry]) -> tuple[str, ...]:
    """The hashes that no entry names, sorted."""
    known = {entry.hash: entry.link.heads for entry in entries}
    return tuple(sorted(known.keys() - {head for heads in known.values() for head in heads}))


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
    """Everything that shows that these are not the events that were written, in their order.

    Args:
        entries: of one record, sorted by number and writer.
        delivery: whose record it is.
        believed: whose signatures are asked for; None when nobody's is.
    """
    known = {entry.hash: entry for entry in entries}
    saw: dict[str, Mapping[str, int]] = {}
    places: dict[tuple[str, int], ChainEntry] = {}
    for entry in entries:
        link = entry.link
        yield from _amiss(entry, known, delivery, is_first=entry is entries[0])
        before: dict[str, int] = {}
        for head in link.heads:
            for writer, seq in saw.get(head, {}).items():
                before[writer] = max(seq, before.get(writer, 0))
        if link.seq != 1 + before.get(link.writer, 0):
            yield entry.finding("inserted", "it does not follow its writer's last event")
        saw[entry.hash] = {**before, link.writer: link.seq}
        if (other := places.setdefault((link.writer, link.seq), entry)) is not entry:
            yield entry.finding("inserted", f"its writer wrote something else in its place: {other.place}")
        yield from _unsigned(entry, believed)
    # Who closes a delivery names all that stands there. Later come only remarks, such as of a report, and what nobody
    # heard: a request to stop, by `tidegate rollback`, may be written while the delivery is closed.
    closings = {each.hash for each in entries if (each.link.event.step, each.link.event.kind) == ("delivery", "closed")}
    for loose in heads_of(entries) if closings else ():
        if loose not in closings and known[loose].link.event.kind not in {"evidence", "stop"}:
            yield known[loose].finding("inserted", "the delivery was closed without it")


def vanished(seen: Mapping[str, str], entries: Iterable[ChainEntry]) -> Iterator[ChainFinding]:
    """What somebody has seen, or noted elsewhere, by its hash, and that no event is now."""
    known = {entry.hash for entry in entries}
    for head, where in seen.items():
        if head not in known:
            yield ChainFinding(what="removed", where=where, why="it was there before, and is gone or another now")


def _amiss(
    entry: ChainEntry, known: Mapping[str, ChainEntry], delivery: str, *, is_first: bool
) -> Iterator[ChainFinding]:
    link = entry.link
    if link.delivery != delivery:
        yield entry.finding("inserted", f"it was written for delivery {link.delivery}")
    for head in link.heads:
        if head not in known:
            why = "what stood before it is gone or another now"
            yield ChainFinding(what="removed", where=f"before {entry.place}", why=why)
        elif known[head].link.number >= link.number:
            yield entry.finding("changed", "it stands before an event that it follows")
    starts = (link.event.step, link.event.kind) == ("delivery", "started")
    if not (link.heads or is_first) or (link.heads and starts):
        yield entry.finding("inserted", "a delivery starts once, and first")


def _unsigned(entry: ChainEntry, believed: Believed | None) -> Iterator[ChainFinding]:
    link = entry.link
    if link.key and not entry.signature:
        yield entry.finding("unsigned", "its signature was taken away")
    elif believed is None or (not link.key and link.event.kind in UNSIGNED_KINDS):
        return
    elif not link.key:
        yield entry.finding("unsigned", "nobody signed it")
    elif link.key not in believed:
        yield entry.finding("unknown key", f"signed by key {link.key}, which nobody trusts")
    elif not believed[link.key](entry.body.encode(), entry.signature):
        yield entry.finding("changed", f"it is not what key {link.key} signed")
