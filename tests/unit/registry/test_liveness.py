from datetime import UTC, datetime, timedelta

import pytest
from fakes.clock import FakeClock

from registry.model import DeliverySummary
from registry.ownership import LIVE_SECONDS, contest, life_of, why_dead
from tidegate.core.clock import WATCH_SECONDS, Life, Watch

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def delivery(name: str = "a", *, age: float = 0.0, silent: float = 0.0, machine: str = "here") -> DeliverySummary:
    started, heartbeat = NOW - timedelta(seconds=age), NOW - timedelta(seconds=silent)
    return DeliverySummary(
        id=name, name="m", version="2", champion="1", started=started, host="ci", pid=7, machine=machine,
        heartbeat=heartbeat,
    )  # fmt: skip


class Noon(FakeClock):
    def now(self) -> datetime:
        return NOW


def life(one: DeliverySummary, *, watched: float = 0.0, process: bool = True, before: datetime | None = None) -> Life:
    """Of one that was watched for so long, and had another heartbeat before."""
    watch, clock = Watch(), Noon()
    if before:
        watch.sees(f"{one.id} {one.owner}", before, clock.monotonic())
    for _ in range(int(watched) + 1):
        found = life_of(one, watch, clock, machine="here", process_exists=lambda pid: process)
        clock.elapsed += 1
    return found


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
    assert life(delivery(silent=silent), watched=watched) is expected


@pytest.mark.parametrize(("watched", "expected"), [(0, Life.ALIVE), (LIVE_SECONDS, Life.DEAD)])
def test_one_whose_heartbeat_was_seen_to_change_lives_whatever_its_clock_says(watched: float, expected: Life) -> None:
    assert life(delivery(silent=86400), watched=watched, before=NOW - timedelta(days=2)) is expected


def test_a_process_that_is_gone_from_this_machine_is_dead_at_once() -> None:
    assert life(delivery(), process=False) is Life.DEAD


@pytest.mark.parametrize("machine", ["there", ""])
def test_the_process_table_of_this_machine_says_nothing_about_another_of_its_name(machine: str) -> None:
    assert life(delivery(machine=machine), process=False) is Life.ALIVE


def test_one_that_many_processes_carry_lives_for_its_patience_no_matter_who_wrote_last() -> None:
    carried = delivery(silent=899).model_copy(update={"patience_seconds": 900.0})
    assert life(carried, process=False) is Life.ALIVE
    assert life(carried.model_copy(update={"patience_seconds": 899.0}), watched=WATCH_SECONDS) is Life.DEAD
    assert why_dead(carried) == "nobody went on with it; its last sign of life was 2026-01-01 11:45:01 UTC"


def test_a_gap_between_two_looks_begins_the_watch_again() -> None:
    watch = Watch()
    assert [watch.sees("a", 1, at) for at in (0, 20, 40, 71, 80)] == [
        (0, False), (20, False), (40, False), (0, False), (9, False)
    ]  # fmt: skip
    assert [watch.sees("a", sign, at) for sign, at in ((2, 85), (2, 90))] == [(0, True), (5, True)]


def test_the_reason_names_process_host_and_last_sign() -> None:
    assert why_dead(delivery()) == "process 7 on ci died; its last sign of life was 2026-01-01 12:00:00 UTC"


def test_alone_nobody_makes_way() -> None:
    assert contest(delivery(), []) is None


def test_the_younger_makes_way_for_the_older() -> None:
    old, young = delivery("old", age=2), delivery("young", age=1)

    assert contest(young, [(old, False)]) == old
    assert contest(old, [(young, False)]) is None


def test_even_the_older_makes_way_for_a_winner() -> None:
    old, young = delivery("old", age=2), delivery("young", age=1)

    assert contest(old, [(young, True)]) == young


def test_of_two_that_began_together_exactly_one_makes_way() -> None:
    one, two = delivery("1"), delivery("2")

    assert (contest(one, [(two, False)]), contest(two, [(one, False)])) == (None, one)
