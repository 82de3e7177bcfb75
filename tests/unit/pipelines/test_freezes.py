"""While a freeze holds no region is changed: of every week or once, by the clock of any place."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from fakes.delivery.identities import FakeProver
from fakes.delivery.world import World, a_spec
from hypothesis import given
from hypothesis import strategies as st

from pipelines.authority.answering import Hearing, Speaker
from pipelines.authority.approvals import frozen
from pipelines.model import Ending
from pipelines.spec.approvals import DAYS, AMoment, FreezeSpec, parse_moment
from pipelines.spec.trust import ApproversSpec


def freeze(start: str, end: str, timezone: str = "UTC") -> FreezeSpec:
    return FreezeSpec.model_validate({"from": start, "to": end, "timezone": timezone, "reason": "weekend"})


def until(freezes: list[FreezeSpec], now: str) -> str | None:
    found = frozen(freezes, datetime.fromisoformat(now).replace(tzinfo=UTC))
    return f"{found.until.astimezone(UTC):%a %d %H:%M}" if found else None


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("2026-01-02 15:59", None),
        ("2026-01-02 16:00", "Mon 05 08:00"),
        ("2026-01-04 23:59", "Mon 05 08:00"),
        ("2026-01-05 07:59", "Mon 05 08:00"),
        ("2026-01-05 08:00", None),
        ("2026-01-07 12:00", None),
    ],
)
def test_a_weekend_comes_every_week(now: str, expected: str | None) -> None:
    assert until([freeze("fri 16:00", "mon 08:00")], now) == expected


@pytest.mark.parametrize(
    ("now", "expected"),
    [("2026-12-19 23:59", None), ("2026-12-20 00:00", "Mon 04 08:00"), ("2027-01-04 08:00", None)],
)
def test_a_date_comes_once(now: str, expected: str | None) -> None:
    assert until([freeze("2026-12-20", "2027-01-04 08:00")], now) == expected


def test_a_day_of_the_same_name_ends_it_later_that_day_or_a_week_later() -> None:
    assert until([freeze("fri 12:00", "fri 14:00")], "2026-01-02 13:00") == "Fri 02 14:00"
    assert until([freeze("fri 14:00", "fri 12:00")], "2026-01-03 13:00") == "Fri 09 12:00"


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("2026-03-27 14:59", None),
        ("2026-03-27 15:00", "Mon 30 06:00"),  # the clocks go forward in between: 16:00 is 15:00 UTC, 08:00 is 06:00
        ("2026-03-30 05:59", "Mon 30 06:00"),
        ("2026-03-30 06:00", None),
    ],
)
def test_the_clock_on_the_wall_of_that_place_counts(now: str, expected: str | None) -> None:
    assert until([freeze("fri 16:00", "mon 08:00", "Europe/Berlin")], now) == expected


def test_of_several_the_one_that_ends_last_is_told() -> None:
    assert until([freeze("fri 16:00", "mon 08:00"), freeze("2026-01-01", "2026-01-10")], "2026-01-03") == "Sat 10 00:00"


@given(st.sampled_from(DAYS), st.times(), st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)))
def test_a_week_has_exactly_one_of_each_moment(day: str, clock: object, at: datetime) -> None:
    moment, now = parse_moment(f"{day} {clock:%H:%M}"), at.replace(tzinfo=UTC)
    last, following = moment.last_before(now, UTC), moment.next_after(now, UTC)
    assert last <= now < following
    assert (following - last).days == 7
    assert moment.last_before(following, UTC) == following


@given(st.one_of(st.integers(0, 6), st.dates()), st.times())
def test_a_moment_is_read_back_as_it_is_written(day: object, clock: object) -> None:
    moment = AMoment(day, clock.replace(second=0, microsecond=0))  # type: ignore[arg-type, attr-defined]
    assert parse_moment(str(moment)) == moment


def frozen_world(folder: Path, line: str) -> World:
    return World(folder, a_spec(traffic=f"traffic: {{requests_per_second: 200}}\nfreeze: [{line}]"))


FIRST_HOURS = "{from: 2026-01-01, to: 2026-01-01 06:00, reason: new year, lift: names}"


async def test_no_region_is_changed_before_it_ends_and_then_all_goes_on(tmp_path: Path) -> None:
    world = frozen_world(tmp_path, FIRST_HOURS.replace("06:00", "00:30"))
    result = await world.deliver()
    assert result.ending is Ending.DELIVERED, result.reason
    begun = {event.step: event.at for event in world.recorder.events if event.kind == "started"}
    assert begun["build"] < datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
    assert begun["deploy@eu-west-1"] >= datetime(2026, 1, 1, 0, 30, tzinfo=UTC)
    [waiting] = [event for event in world.recorder.events if event.kind == "waiting"]
    assert (waiting.step, waiting.message) == (
        "deploy@eu-west-1", "until 2026-01-01 00:30 UTC: frozen: new year",
    )  # fmt: skip


async def test_a_freeze_is_lifted_by_whom_the_spec_names_and_by_no_name(tmp_path: Path) -> None:
    line = "{from: 2026-01-01, to: 2026-01-01 06:00, reason: new year, lift: {groups: [risk]}}"
    world = frozen_world(tmp_path, line)
    world.identities.approvers = ApproversSpec(allowed_signers=Path("k"))

    def everybody() -> None:
        world.answers("freeze", "approved", "ann")
        hearing = Hearing(world.spec, "1", world.ledger.recorded(), world.identities, world.clock)
        world.appends(hearing.answer("freeze", Speaker(prover=FakeProver("bob of risk"))))

    world.when("deploy@eu-west-1", "waiting", everybody)
    assert (await world.deliver()).ending is Ending.DELIVERED
    assert world.now() < datetime(2026, 1, 1, 6, tzinfo=UTC)
    said = [event.message for event in world.recorder.events if event.kind in ("ignored", "allowed")]
    assert said[:2] == [
        "an answer to freeze by ann does not count: a name alone is not enough here",
        "freeze was approved by bob (SSH key SHA256:x)",
    ]
