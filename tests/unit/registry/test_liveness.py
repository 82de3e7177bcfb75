"""Which deliveries count as alive: by the process table of their machine, and by heartbeats elsewhere."""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from registry.conventions import CARRIER, CHAMPION, HEARTBEAT, MODEL, STATE, VERSION
from registry.deliveries import LIVE_SECONDS, OPENING, RUNNING, MlflowDeliveries, why_dead
from registry.errors import DeliveryRuns
from registry.model import DeliverySummary, ModelVersion, StoredRun
from registry.processes import this_machine
from registry.record import Carrier
from tidegate.core.clock import WATCH_SECONDS, Life, Watch
from tidegate.testing import START, FakeClock, MemoryStore

NOBODY = 2**31 - 1
"""No process has it."""
DELIVERED = ModelVersion(name="m", version="2", digest="d" * 64, files={}, size_bytes=0)


def delivery(store: MemoryStore, *, age: float = 0.0, state: str = RUNNING, **carrier: object) -> DeliverySummary:
    """Of another process; it was last heard of at the start."""
    begun = START - timedelta(seconds=age)
    said = Carrier.model_validate({"at": begun, "host": "ci", "pid": NOBODY, "machine": "there"} | carrier)
    tags = {MODEL: "m", VERSION: "2", CHAMPION: "1", HEARTBEAT: START.isoformat(), STATE: state}
    tags[CARRIER] = said.model_dump_json()
    run = store.create_run("tidegate/m", name="", started=round(begun.timestamp() * 1000), tags=tags, params={})
    return MlflowDeliveries(store).summary(run.id)


@pytest.mark.parametrize(
    ("silent", "watched", "expected"),
    [
        (0, 0, Life.ALIVE),
        (LIVE_SECONDS - 1, WATCH_SECONDS, Life.ALIVE),
        # Its clock or ours goes differently, or it is dead: a look does not tell.
        (LIVE_SECONDS, 0, Life.UNCLEAR),
        (-LIVE_SECONDS, 0, Life.UNCLEAR),
        (86400, WATCH_SECONDS - 1, Life.UNCLEAR),
        (86400, WATCH_SECONDS, Life.DEAD),
        (-86400, WATCH_SECONDS, Life.DEAD),
        (0, LIVE_SECONDS, Life.DEAD),
    ],
)
def test_silence_counts_by_the_own_clock_from_a_heartbeat_that_was_seen(
    silent: float, watched: float, expected: Life
) -> None:
    watch, heard = Watch(), START - timedelta(seconds=silent)
    for at in range(int(watched) + 1):
        found = watch.life("a", heard, now=START, monotonic=at, allowed=LIVE_SECONDS)
    assert found is expected


@pytest.mark.parametrize(("watched", "expected"), [(0, Life.ALIVE), (LIVE_SECONDS, Life.DEAD)])
def test_one_whose_heartbeat_was_seen_to_change_lives_whatever_its_clock_says(watched: float, expected: Life) -> None:
    watch, heard = Watch(), START - timedelta(days=1)
    watch.sees("a", heard - timedelta(days=1), 0)
    for at in range(int(watched) + 1):
        found = watch.life("a", heard, now=START, monotonic=at, allowed=LIVE_SECONDS)
    assert found is expected


def test_a_gap_between_two_looks_begins_the_watch_again() -> None:
    watch = Watch()
    assert [watch.sees("a", 1, at) for at in (0, 20, 40, 71, 80)] == [
        (0, False), (20, False), (40, False), (0, False), (9, False)
    ]  # fmt: skip
    assert [watch.sees("a", sign, at) for sign, at in ((2, 85), (2, 90))] == [(0, True), (5, True)]


@pytest.mark.parametrize(
    ("machine", "lives"),
    # The process table of this machine says nothing about another of its name.
    [(this_machine(), False), ("there", True), ("", True)],
)
def test_a_process_that_is_gone_from_this_machine_is_dead_at_once(machine: str, lives: bool) -> None:
    store = MemoryStore()
    assert MlflowDeliveries(store, FakeClock()).is_alive(delivery(store, machine=machine)) is lives


@pytest.mark.parametrize(("patience", "lives"), [(900.0, True), (899.0, False)])
def test_one_that_many_processes_carry_lives_for_its_patience_no_matter_who_wrote_last(
    patience: float, lives: bool
) -> None:
    store, clock = MemoryStore(), FakeClock()
    carried = delivery(store, machine=this_machine(), patience_seconds=patience)
    clock.elapsed = 899
    assert MlflowDeliveries(store, clock).is_alive(carried) is lives
    assert why_dead(carried) == f"nobody went on with it; its last sign of life was {START:%F %T} UTC"


def test_the_reason_names_process_host_and_last_sign() -> None:
    found = delivery(MemoryStore())
    assert why_dead(found) == f"process {NOBODY} on ci died; its last sign of life was {START:%F %T} UTC"


class Contested(MemoryStore):
    """Somebody else opens a delivery after one has looked at the others, and before it is there itself."""

    rival: Callable[[], DeliverySummary] | None = None
    theirs: DeliverySummary | None = None

    def create_run(self, *args: Any, **named: Any) -> StoredRun:
        rival, self.rival = self.rival, None
        if rival is not None:
            self.theirs = rival()
        return super().create_run(*args, **named)


@pytest.mark.parametrize(
    ("age", "state", "leaves", "opens"),
    [
        pytest.param(1, OPENING, False, False, id="an older one"),
        pytest.param(-1, OPENING, True, True, id="a younger one that makes way"),
        pytest.param(-1, OPENING, False, False, id="a younger one that does not"),
        pytest.param(-1, RUNNING, False, False, id="a winner"),
    ],
)
def test_of_two_that_open_at_once_the_younger_makes_way(age: float, state: str, *, leaves: bool, opens: bool) -> None:
    store, clock = Contested(), FakeClock()
    store.rival = lambda: delivery(store, age=age, state=state)
    waited = 0

    def sleep(seconds: float) -> None:
        nonlocal waited
        assert store.theirs is not None
        waited, clock.elapsed = waited + 1, clock.elapsed + max(seconds, 1.0)
        store.log(store.theirs.id, tags={HEARTBEAT: clock.now().isoformat()})
        if leaves:
            store.delete_run(store.theirs.id)

    made = set[str]()
    with suppress(DeliveryRuns):
        made.add(
            MlflowDeliveries(store, clock, host="laptop", sleep=sleep)
            .open_delivery(DELIVERED, None, spec_digest="s")
            .delivery
        )
    assert store.theirs is not None
    assert bool(made) is opens
    assert bool(waited) is (state == OPENING and age < 0)
    # The one who makes way leaves nothing behind.
    assert {run.id for run in store.runs.values() if not run.is_deleted} == (made or {store.theirs.id})
