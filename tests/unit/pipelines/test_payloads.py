"""Events are written and read by one class for each kind; what an older or a newer tidegate wrote is read too."""

from __future__ import annotations

from typing import get_args

import pytest
from fakes.delivery.world import CHALLENGER, CHAMPION, a_spec, a_version

from pipelines.events import payloads
from pipelines.events.history import plan_of
from pipelines.events.journal import opening_of
from pipelines.events.payloads import (
    FORMAT,
    AnswerIgnored,
    Closing,
    DeliveryPayload,
    Opening,
    Payload,
    Returned,
    TrafficShift,
    VerdictPayload,
    payload_of,
)
from pipelines.events.state import DeliveryState
from pipelines.plan.planner import make_plan
from registry.model import Event, EventKind
from tidegate.core.errors import NotGenuine, UsageError
from tidegate.testing import START

KINDS = get_args(DeliveryPayload)
NEEDED: dict[type[Payload], dict[str, object]] = {
    TrafficShift: {"region": "a"},
    VerdictPayload: {"gate": "errors", "outcome": "pass"},
    AnswerIgnored: {"approval": "wave@2"},
    Returned: {"region": "a"},
    Closing: {"outcome": "delivered"},
}
PAYLOADS = [each for each in vars(payloads).values() if isinstance(each, type) and issubclass(each, Payload)]


def test_every_kind_has_what_it_carries() -> None:
    assert {each for each in PAYLOADS if hasattr(each, "kind")} == set(KINDS)
    assert {each.kind for each in KINDS} == set(EventKind)


def test_an_event_is_read_as_what_its_kind_carries() -> None:
    events = {
        each: Event(at=START, step="build", kind=each.kind, message="", data=NEEDED.get(each, {})) for each in KINDS
    }
    opening = Event(at=START, step="delivery", kind="started", message="", data={"model": "m", "version": "7"})
    assert {type(payload_of(event)) for event in events.values()} == set(KINDS) - {Opening}
    assert type(payload_of(opening)) is Opening


def test_a_kind_of_a_newer_tidegate_is_none_of_ours() -> None:
    newer = Event(at=START, step="build", kind="weighed", message="", data={"kilograms": 3})
    assert payload_of(newer) is None
    assert DeliveryState().apply(newer) == DeliveryState()


def test_an_event_that_carries_something_else_is_told_in_one_line() -> None:
    wrong = Event(at=START, step="canary@a/5", kind="traffic", message="", data={"region": "a", "weight": "all"})
    with pytest.raises(NotGenuine, match=r"cannot be read: canary@a/5.traffic.weight: Input should be a valid"):
        payload_of(wrong)


def test_a_delivery_of_a_newer_format_is_not_gone_on_with() -> None:
    plan = make_plan(a_spec(), a_version(CHALLENGER), a_version(CHAMPION), prompts=12)
    opening: Opening = opening_of(plan, None)
    assert plan_of([opening.event(START, "delivery")]).version == plan.version
    newer = opening.model_copy(update={"format": FORMAT + 1})
    with pytest.raises(UsageError, match=f"events have format {FORMAT + 1}, and this tidegate reads {FORMAT}"):
        plan_of([newer.event(START, "delivery")])
