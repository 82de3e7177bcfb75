"""Which deliveries count as alive: by the process table of their machine, and by heartbeats elsewhere."""

from datetime import timedelta

import pytest
from fakes.delivery.store import MemoryStore

from registry.conventions import CARRIER, CHAMPION, HEARTBEAT, MODEL, VERSION
from registry.deliveries import LIVE_SECONDS, MlflowDeliveries, this_machine, why_dead
from registry.model import DeliverySummary
from registry.record import Carrier
from tidegate.core.clock import WATCH_SECONDS, Life, Watch
from tidegate.testing import START, FakeClock

NOBODY = 2**31 - 1
"""No process has it."""


def delivery(store: MemoryStore, **carrier: object) -> DeliverySummary:
    """Of another process; it was last heard of at the start."""
    said = Carrier.model_validate({"at": START, "host": "ci", "pid": NOBODY, "machine": "there"} | carrier)
    tags = {MODEL: "m", VERSION: "2", CHAMPION: "1", HEARTBEAT: START.isoformat()}
    tags[CARRIER] = said.model_dump_json()
    run = store.create_run("tidegate/m", name="", started=round(START.timestamp() * 1000), tags=tags, params={})
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
