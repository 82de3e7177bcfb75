"""Points in time as a person writes them: `fri 16:00` of every week, or `2026-12-20 18:00` once. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
EXPECTED = "a day of the week such as `fri 16:00`, or a date such as `2026-12-20` or `2026-12-20 18:00`"

_DAY, _DATE, _CLOCK = "|".join(DAYS), r"\d{4}-\d\d-\d\d", r"\d\d:\d\d"
_TEXT = re.compile(rf"(?:(?P<day>{_DAY})|(?P<date>{_DATE}))(?:[ T](?P<clock>{_CLOCK}))?")


@dataclass(frozen=True, order=True)
class AMoment:
    """A time of day, of a day of every week or of one date."""

    day: date | int
    """A date; or a day of the week, Monday 0."""
    clock: time

    @property
    def weekly(self) -> bool:
        """Whether it comes again every week."""
        return isinstance(self.day, int)

    def __str__(self) -> str:
        day = DAYS[self.day] if isinstance(self.day, int) else self.day.isoformat()
        return f"{day} {self.clock:%H:%M}"

    def last_before(self, now: datetime, zone: tzinfo) -> datetime:
        """When it last was, seen from `now`; a date's only time, also when that is still to come."""
        if not isinstance(self.day, int):
            return datetime.combine(self.day, self.clock, zone)
        today = now.astimezone(zone).date()
        found = datetime.combine(today - timedelta(days=(today.weekday() - self.day) % 7), self.clock, zone)
        return found if found <= now else datetime.combine(found.date() - timedelta(days=7), self.clock, zone)

    def next_after(self, start: datetime, zone: tzinfo) -> datetime:
        """When it comes for the first time after `start`; a date's only time."""
        if not isinstance(self.day, int):
            return datetime.combine(self.day, self.clock, zone)
        first = start.astimezone(zone).date()
        found = datetime.combine(first + timedelta(days=(self.day - first.weekday()) % 7), self.clock, zone)
        return found if found > start else datetime.combine(found.date() + timedelta(days=7), self.clock, zone)


def parse_moment(value: Any) -> AMoment:
    """Read `fri 16:00`, `fri`, `2026-12-20`, `2026-12-20 18:00`.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, AMoment):
        return value
    match = _TEXT.fullmatch(str(value))
    if match is None:
        raise ValueError(EXPECTED)
    try:
        day = DAYS.index(match["day"]) if match["day"] else date.fromisoformat(match["date"])
        return AMoment(day, time.fromisoformat(match["clock"] or "00:00"))
    except ValueError:
        raise ValueError(EXPECTED) from None


Moment = Annotated[
    AMoment,
    BeforeValidator(parse_moment),
    PlainSerializer(str, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": f"^({_DAY}|{_DATE})([ T]{_CLOCK})?$"}),
]
