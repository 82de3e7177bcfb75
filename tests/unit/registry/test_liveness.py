from datetime import UTC, datetime, timedelta

from registry.model import DeliverySummary
from registry.ownership import LIVE_SECONDS, contest, is_alive, why_dead

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def delivery(name: str = "a", *, age: float = 0.0, silent: float = 0.0, host: str = "here") -> DeliverySummary:
    started, heartbeat = NOW - timedelta(seconds=age), NOW - timedelta(seconds=silent)
    return DeliverySummary(
        id=name, name="m", version="2", champion="1", started=started, host=host, pid=7, heartbeat=heartbeat
    )


def alive(one: DeliverySummary, *, process: bool = True) -> bool:
    return is_alive(one, NOW, "here", lambda pid: process)


def test_a_fresh_heartbeat_is_a_sign_of_life() -> None:
    assert alive(delivery(silent=LIVE_SECONDS - 1))
    assert not alive(delivery(silent=LIVE_SECONDS))


def test_a_process_that_is_gone_from_this_machine_is_dead_at_once() -> None:
    assert not alive(delivery(), process=False)


def test_the_process_table_of_this_machine_says_nothing_about_another() -> None:
    assert alive(delivery(host="there"), process=False)


def test_one_that_many_processes_carry_lives_for_its_patience_no_matter_who_wrote_last() -> None:
    carried = delivery(silent=899).model_copy(update={"patience_seconds": 900.0})
    assert alive(carried, process=False)
    assert not alive(carried.model_copy(update={"patience_seconds": 899.0}))
    assert why_dead(carried) == "nobody went on with it; its last sign of life was 2026-01-01 11:45:01 UTC"


def test_the_reason_names_process_host_and_last_sign() -> None:
    assert why_dead(delivery()) == "process 7 on here died; its last sign of life was 2026-01-01 12:00:00 UTC"


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
