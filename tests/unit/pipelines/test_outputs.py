"""What CI shows of a delivery: red unless it was delivered, and why, whatever a reason holds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from xml.etree import ElementTree

import pytest
from fakes.delivery.records import START, Delivery, bad_answers, delivered

from pipelines.events.state import DeliveryState, state_of
from pipelines.views.ci import GATES_SHOWN, delivery_junit, delivery_markdown
from pipelines.views.wording import broken_off
from registry.model import Event

LATER = START + timedelta(hours=1)


def junit(events: Sequence[Event]) -> ElementTree.Element:
    return ElementTree.fromstring(delivery_junit(state_of(events), "0f3c", LATER))


def marks(root: ElementTree.Element) -> dict[str, str]:
    """What is not simply green, by group and name."""
    return {
        f"{case.attrib['classname']} {case.attrib['name']}": mark.tag
        for case in root.iter("testcase")
        for mark in case
        if mark.tag != "system-out"
    }


def markdown(events: Sequence[Event]) -> list[str]:
    return delivery_markdown(state_of(events), "0f3c", LATER).splitlines()


@pytest.mark.parametrize("ending", ["inconclusive", "interrupted", "failed"])
def test_whatever_was_not_delivered_and_not_judged_is_an_error(ending: str) -> None:
    events = Delivery().open().pass_through("build", 5).close(ending, "no one knows", 3).events
    assert marks(junit(events))["tidegate delivery"] == "error"


def test_reasons_break_neither_table_nor_xml() -> None:
    events = bad_answers()
    nasty = "a | b\n<script>\x00 `x`"
    events = [event.model_copy(update={"message": nasty}) if event.kind == "failed" else event for event in events]
    (row,) = [line for line in markdown(events) if line.startswith("| offline@eu-west-1 |")]
    assert row.endswith(r"| a \| b \<script\> \`x\` |")
    assert marks(junit(events))["tidegate.eu-west-1 offline@eu-west-1"] == "failure"


def test_a_summary_stays_small_enough_for_a_page() -> None:
    delivery = Delivery().open()
    for number in range(GATES_SHOWN):
        delivery.verdict(f"canary@eu-west-1/{number % 9 + 1}", f"gate{number}", "pass", "well")
    delivery.verdict("canary@eu-west-1/50", "last", "fail", "slow").close("rolled-back", "slow", 1)
    lines = markdown(delivery.events)
    assert lines[lines.index("| gate | in | verdict | why |") + 2].startswith("| last | canary@eu-west-1/50 | **fail**")
    assert "| and 1 more | | | |" in lines


def test_a_delivery_that_was_refused_is_red_too() -> None:
    story = broken_off(DeliveryState(), "another delivery runs; wait")
    root = ElementTree.fromstring(delivery_junit(story, "", LATER))
    assert marks(root) == {"tidegate start": "error"}
    assert delivery_markdown(story, "", LATER).splitlines() == [
        "### Nothing was begun",
        "",
        "| | |",
        "|---|---|",
        "| outcome | **refused** |",
        "| decided by | another delivery runs; wait |",
    ]


def test_an_error_after_the_beginning_leaves_what_was_done() -> None:
    story = broken_off(
        state_of(Delivery().open().pass_through("build", 5).say("deploy@eu-west-1", "started").events), "x"
    )
    assert (story.outcome, story.reason) == ("failed", "x")
    found = marks(ElementTree.fromstring(delivery_junit(story, "", LATER)))
    assert found["tidegate.eu-west-1 deploy@eu-west-1"] == "error"
    assert "tidegate build" not in found
    closed = state_of(delivered())
    assert broken_off(closed, "x") is closed
