"""No event of a chain can be changed, inserted, taken out or moved without that being seen."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from registry.chain import Believed, ChainEntry, Seal, entry_of, examine, heads_of, linked, vanished
from registry.model import Event
from registry.record import entry_tags, read_record

AT = datetime(2026, 1, 1, 9, 30, tzinfo=UTC)


def key(name: str) -> Seal:
    """A key that only the one who holds it can sign with."""
    return Seal(name, lambda content: sha256(f"secret of {name}".encode() + content).hexdigest())


OURS = key("ours")
BELIEVED: Believed = {OURS.key: lambda content, signature: OURS.sign(content) == signature}


def event(step: str, kind: str = "done", **data: object) -> Event:
    return Event(at=AT, step=step, kind=kind, message="", data=data)


def a_chain(writers: list[int], *, seal: Seal | None = None) -> list[ChainEntry]:
    """A delivery that is over: its beginning, events of those writers, and its end; 3 saw nothing of the last one."""
    entries = [linked(event("delivery", "started"), [], delivery="1", number=1, writer="", seal=seal)]
    for number, who in enumerate(writers):
        blind = who == 3 and len(entries) > 2 and entries[-1].link.writer != "w3"
        seen = entries[:-1] if blind else entries
        place = 1 + max(each.link.number for each in seen)
        said = event(f"canary@r{who}/{number}")
        entries.append(linked(said, seen, delivery="1", number=place, writer=f"w{who}", seal=seal))
    last = 1 + max(each.link.number for each in entries)
    entries.append(linked(event("delivery", "closed"), entries, delivery="1", number=last, writer="", seal=seal))
    return entries


def found(entries: list[ChainEntry], believed: Believed | None = None) -> list[str]:
    tags = {key: value for entry in entries for key, value in entry_tags(entry).items()}
    return [str(each) for each in read_record(tags).findings("1", believed)]


def reworded(entry: ChainEntry, **changes: object) -> ChainEntry:
    link = entry.link.model_copy(update=changes)
    return ChainEntry(link.model_dump_json(), entry.signature, link)


chains = st.lists(st.integers(0, 3), min_size=1, max_size=12).map(a_chain)


@given(chains)
@settings(max_examples=60, deadline=None)
def test_what_was_written_is_genuine_no_matter_who_wrote_next_to_whom(entries: list[ChainEntry]) -> None:
    assert found(entries) == []
    assert heads_of(entries) == (entries[-1].hash,)


@given(chains, st.data())
@settings(max_examples=60, deadline=None)
def test_an_edit_is_found(entries: list[ChainEntry], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(entries) - 2))
    forged = reworded(entries[at], event=event("promote@r1", "approved"))
    assert found([*entries[:at], forged, *entries[at + 1 :]])


@given(chains, st.data())
@settings(max_examples=60, deadline=None)
def test_a_removal_is_found(entries: list[ChainEntry], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(entries) - 2))
    assert any("removed" in line for line in found([*entries[:at], *entries[at + 1 :]]))


@given(chains, st.data())
@settings(max_examples=60, deadline=None)
def test_an_insertion_is_found(entries: list[ChainEntry], data: st.DataObject) -> None:
    at = data.draw(st.integers(1, len(entries)))
    writer = data.draw(st.sampled_from(["", "w0", "w1", "forged"]))
    number = data.draw(st.integers(0, len(entries) + 3))
    # In the closing's own place it would be a removal from the end, which only a head noted elsewhere shows.
    assume((number, writer) != (entries[-1].link.number, entries[-1].link.writer))
    step, kind = data.draw(st.sampled_from(["offline@r1", "delivery"])), data.draw(st.sampled_from(["done", "started"]))
    forged = linked(event(step, kind), entries[:at], delivery="1", number=number, writer=writer, seal=None)
    entries_kept = [each for each in entries[:-1] if (each.link.number, each.link.writer) != (number, writer)]
    entries_kept.append(entries[-1])
    assert found([*entries_kept, forged])


@given(chains, st.data())
@settings(max_examples=60, deadline=None)
def test_two_that_change_places_are_found(entries: list[ChainEntry], data: st.DataObject) -> None:
    one = data.draw(st.integers(0, len(entries) - 2))
    other = data.draw(st.integers(one + 1, len(entries) - 1))
    first, second = entries[one], entries[other]
    swapped = [
        reworded(first, number=second.link.number, writer=second.link.writer),
        reworded(second, number=first.link.number, writer=first.link.writer),
    ]
    rest = [each for each in entries if each not in (first, second)]
    assert found([*rest, *swapped])


def test_a_text_that_stands_in_anothers_place_is_found() -> None:
    entries = a_chain([1, 2])
    tags = {key: value for entry in entries for key, value in entry_tags(entry).items()}
    moved = {key.replace("event.0002", "event.0009"): value for key, value in tags.items()}
    assert any("it stands at 9, another's place" in str(each) for each in read_record(moved).findings("1"))


def test_events_of_another_delivery_are_found() -> None:
    assert "was written for delivery 1" in next(map(str, examine(a_chain([1]), "2")))


PLAIN = event("offline@eu-west-1").model_dump_json()


@pytest.mark.parametrize("text", ["", "nonsense", "{}", "{}\n", "[1]\nsignature", PLAIN])
def test_what_is_no_event_is_found_and_breaks_nothing(text: str) -> None:
    tags = {"mlflow.tidegate.event.0000.1of1.forged": text}
    assert entry_of(text) is None
    assert [each.why for each in read_record(tags).findings("1")] == ["it is no event of a chain"]
    assert read_record(tags).events == []


def test_no_matter_who_saw_more_knows_what_was_cut_off_at_the_end() -> None:
    entries = a_chain([1, 2])
    running = entries[:-1]
    assert found(running[:-1]) == []
    seen = {entry.hash: entry.place for entry in running}
    assert [each.what for each in vanished(seen, running[:-1])] == ["removed"]
    assert list(vanished(seen, entries)) == []


def test_only_who_has_a_key_that_is_believed_writes() -> None:
    signed = a_chain([1, 2], seal=OURS)
    assert found(signed, BELIEVED) == []
    assert all("nobody signed it" in line for line in found(a_chain([1, 2]), BELIEVED))
    strange = a_chain([1], seal=key("outsider"))
    assert all("key outsider, which nobody trusts" in line for line in found(strange, BELIEVED))
    last = signed[-1]
    forged = reworded(last, event=event("delivery", "closed", outcome="delivered"))
    assert found([*signed[:-1], forged], BELIEVED) == ["changed: 4 (delivery closed): it is not what key ours signed"]
    assert found([*signed[:-1], ChainEntry(last.body, "", last.link)]) == [
        "unsigned: 4 (delivery closed): its signature was taken away"
    ]


def test_an_answer_from_outside_needs_no_key_of_a_writer() -> None:
    signed = a_chain([1], seal=OURS)[:-1]
    said = linked(event("promote@r1", "approved"), signed, delivery="1", number=9, writer="ann", seal=None)
    assert found([*signed, said], BELIEVED) == []


def test_a_request_to_stop_that_came_in_the_moment_of_the_end_is_no_forgery() -> None:
    entries = a_chain([1])
    stop = linked(event("delivery", "stop"), entries[:-1], delivery="1", number=9, writer="ann", seal=None)
    assert found([*entries, stop]) == []
    late = linked(event("promote@r1", "approved"), entries[:-1], delivery="1", number=9, writer="ann", seal=None)
    assert found([*entries, late]) == ["inserted: 9 (promote@r1 approved): the delivery was closed without it"]
