"""What CI shows of a delivery: red unless it was delivered, and why, whatever a reason holds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from xml.etree import ElementTree

import pytest
from fakes.delivery.records import START, Delivery, bad_answers, delivered, slow

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


def test_a_delivered_version_is_green_throughout() -> None:
    root = junit(delivered())
    assert marks(root) == {}
    assert (root.attrib["failures"], root.attrib["errors"], root.attrib["skipped"]) == ("0", "0", "0")
    steps, gates = root
    assert [steps.attrib["name"], gates.attrib["name"]] == ["support-llm 2", "support-llm 2: gates"]
    assert steps.attrib["timestamp"] == "2026-01-01T09:00:00"
    assert [case.attrib["name"] for case in steps][:3] == ["delivery", "build", "deploy@eu-west-1"]


def test_what_stopped_a_delivery_is_red_and_what_never_came_is_skipped() -> None:
    found = marks(junit(slow()))
    red = {name for name, mark in found.items() if mark == "failure"}
    assert red == {
        "tidegate delivery",
        "tidegate.eu-west-1 canary@eu-west-1/25",
        "tidegate.canary@eu-west-1/25 latency",
    }
    assert found["tidegate.us-east-1 deploy@us-east-1"] == "skipped"
    assert found["tidegate.eu-west-1 deploy@eu-west-1"] == "skipped"
    # The gate next to the one that failed had not answered: no failure of its own.
    assert found["tidegate.canary@eu-west-1/25 errors"] == "skipped"


@pytest.mark.parametrize("ending", ["inconclusive", "interrupted", "failed"])
def test_whatever_was_not_delivered_and_not_judged_is_an_error(ending: str) -> None:
    events = Delivery().open().pass_through("build", 5).close(ending, "no one knows", 3).events
    assert marks(junit(events))["tidegate delivery"] == "error"


def test_times_are_those_of_the_clock_though_regions_go_side_by_side() -> None:
    story = state_of(delivered())
    root = junit(delivered())
    assert story.ended is not None
    assert float(root.attrib["time"]) == pytest.approx(story.elapsed_seconds(story.ended))


def test_a_summary_says_first_what_decided() -> None:
    lines = markdown(slow())
    assert lines[0] == "### support-llm 4 was taken back: TTFT p95 262 ms against 98 ms"
    assert "| outcome | **rolled-back** |" in lines
    assert "| decided by | latency: TTFT p95 262 ms against 98 ms, in canary@eu-west-1/25 |" in lines
    assert "| delivery | `0f3c` |" in lines
    assert lines.index("<details><summary>4 verdicts</summary>") < lines.index("| gate | in | verdict | why |")
    assert lines[lines.index("| gate | in | verdict | why |") + 2].startswith(
        "| latency | canary@eu-west-1/25 | **fail** | TTFT p95 262 ms against 98 ms;"
    )
    assert sum(line == "</details>" for line in lines) == 2


def test_a_summary_of_a_delivered_version_says_where_users_are() -> None:
    lines = markdown(delivered())
    assert lines[0] == "### support-llm 2 is in production"
    assert "| us-east-1 | 100% on 2 |" in lines


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
