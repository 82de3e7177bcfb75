"""`approvals`, `freeze` and `resume` of a delivery's spec: when a person is asked, and when nothing may begin.

Recurring times are read here too: `fri 16:00` of every week, or `2026-12-20 18:00` once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    PlainSerializer,
    Tag,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from pipelines.model import PlanStep, StageName
from tidegate.core.model import SpecConflict, SpecModel, at_odds
from tidegate.core.units import Duration, PercentText, percent_too

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
        return datetime.combine(self.last_before(start, zone).date() + timedelta(days=7), self.clock, zone)


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


def _some_users(value: object) -> object:
    value = percent_too(value)
    if value == 100:
        raise ValueError("at most 99: the promotion after the last weight is the 100 %")
    return value


Weight = Annotated[
    int,
    BeforeValidator(_some_users, json_schema_input_type=Annotated[int, Field(ge=1, le=99)] | PercentText),
    Field(ge=1, le=99),
]
"""Percent of users on the canary."""
IN_REGIONS = frozenset({"deploy", "shadow", "canary", "promote"})
"""Stages that one region may ask for and another not."""


class ProvenBy(SpecModel):
    """People who have proven who they are, as `approvers` of `trust.yaml` says how."""

    groups: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Of which groups, one of them is enough; the one who can prove who they are when it is left out."""
    count: int = Field(default=1, ge=1)
    """How many of them, each a person of their own."""

    def __str__(self) -> str:
        who = f"of {' or '.join(self.groups)}" if self.groups else "whom trust.yaml knows"
        return f"{'one' if self.count == 1 else self.count} {who}"


NAMES = "names"
WhoMay = Annotated[
    Annotated[Literal["names"], Tag("names")] | Annotated[ProvenBy, Tag("proven")],
    Discriminator(lambda value: "names" if isinstance(value, str) else "proven"),
]
"""Who may say it; `names` believes whatever anybody who reaches the ledger says of themselves."""


def refuse_unknowable(by: WhoMay, *, not_the_requester: bool) -> None:
    """Somebody who is only named may be anybody, the one who asked for the delivery included."""
    if by == NAMES and not_the_requester:
        raise at_odds("not_the_requester where names are enough", "`by` with people who prove who they are")


class ApprovalSpec(SpecModel):
    """Something that begins only after people have said yes."""

    before: Literal["wave", "deploy", "shadow", "canary", "promote", "finalize"]
    """A whole wave, once for all its regions; or a stage, once for each region."""
    wave: int | None = Field(default=None, ge=1)
    """Which one, from 1; only with `before: wave`."""
    region: str | None = None
    """Where; every region when it is left out."""
    weight: Weight | None = None
    """Before which weight of the canary; before the first when it is left out."""
    within: Duration = timedelta(days=1)
    """Without an answer for so long the delivery is rolled back, as inconclusive."""
    by: WhoMay = ProvenBy()
    """Who must say so; `names` where a name is enough, with no proof of whose it is."""
    not_the_requester: bool = False
    """Anyone who asked for the delivery does not count; that, too, must be proven then."""

    @model_validator(mode="after")
    def _fits(self) -> ApprovalSpec:
        if (self.before == "wave") != (self.wave is not None):
            raise at_odds(
                f"before: {self.before}, wave: {self.wave or 'none'}", "`wave` with `before: wave`, only there"
            )
        if self.region is not None and self.before not in IN_REGIONS:
            raise at_odds(f"a region with before: {self.before}", "one of " + ", ".join(sorted(IN_REGIONS)))
        if self.weight is not None and self.before != "canary":
            raise at_odds(f"a weight with before: {self.before}", "a weight with `before: canary`")
        refuse_unknowable(self.by, not_the_requester=self.not_the_requester)
        return self


def approval_conflicts(
    approvals: Sequence[ApprovalSpec],
    regions: Sequence[str],
    waves: int,
    stages: Collection[str],
    weights: Sequence[int],
) -> Iterator[SpecConflict]:
    """Approvals of what this delivery does not have: nobody would ever be asked."""
    for at, approval in enumerate(approvals):
        if approval.wave is not None and approval.wave > waves:
            yield SpecConflict((at, "wave"), str(approval.wave), f"a wave from 1 to {waves}")
        if approval.region is not None and approval.region not in regions:
            yield SpecConflict((at, "region"), "an unknown region", "one of " + ", ".join(regions))
        if approval.before in ("shadow", "canary") and approval.before not in stages:
            yield SpecConflict((at, "before"), f"{approval.before}, which is none of `stages`", "a stage that is there")
        elif approval.weight is not None and approval.weight not in weights:
            known = ", ".join(map(str, weights))
            yield SpecConflict((at, "weight"), str(approval.weight), f"one of the canary's weights: {known}")


class FreezeSpec(SpecModel):
    """A time in which no region is changed."""

    start: Moment = Field(alias="from")
    """Of every week, as `fri 16:00`, or of one year, as `2026-12-20` or `2026-12-20 18:00`."""
    end: Moment = Field(alias="to")
    """In the same way; a day without a time is its beginning."""
    timezone: str = "UTC"
    """Whose clock is meant, such as Europe/Berlin."""
    reason: str = Field(min_length=1)
    """Told to the one who waits."""
    lift: WhoMay = ProvenBy()
    """Who may let a delivery go on all the same, this time."""
    not_the_requester: bool = False
    """Anyone who asked for the delivery may not."""

    @field_validator("timezone")
    @classmethod
    def _known(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ValueError, OSError, LookupError):
            raise ValueError("a time zone that this machine knows, such as UTC or Europe/Berlin") from None
        return name

    @model_validator(mode="after")
    def _some_time(self) -> FreezeSpec:
        if self.start.weekly != self.end.weekly:
            raise at_odds(f"from {self.start} to {self.end}", "two days of the week, or two dates")
        if self.start == self.end or (not self.start.weekly and self.start > self.end):
            raise at_odds(f"from {self.start} to {self.end}", "an end after the start")
        refuse_unknowable(self.lift, not_the_requester=self.not_the_requester)
        return self


class ResumeSpec(SpecModel):
    """Who may carry on a delivery that somebody else has asked for."""

    by: WhoMay = ProvenBy()
    """Who may; one of them is enough."""

    @model_validator(mode="after")
    def _one(self) -> ResumeSpec:
        if isinstance(self.by, ProvenBy) and self.by.count > 1:
            raise at_odds(f"count: {self.by.count}", "1: who carries on a delivery is one person")
        return self


def asked_before(approval: ApprovalSpec, step: PlanStep, steps: Sequence[PlanStep]) -> str | None:
    """The name of what is asked before that step, such as `wave@2` or the step's own id; None when nothing is."""
    if approval.before == "wave":
        # A wave begins with the deployments of its regions; one answer is for all of them.
        begins = step.stage is StageName.DEPLOY and step.wave == approval.wave
        return f"wave@{approval.wave}" if begins else None
    if step.stage != approval.before or approval.region not in (None, step.region):
        return None
    first = min((each.weight for each in steps if each.weight is not None), default=None)
    wanted = (approval.weight or first) if step.stage is StageName.CANARY else None
    return step.id if step.weight == wanted else None
