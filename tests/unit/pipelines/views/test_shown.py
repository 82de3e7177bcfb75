"""A delivery in words, in CI systems, and as metrics."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest
from fakes.delivery.records import START, Delivery, bad_answers, delivered, slow
from fakes.golden import is_golden
from prometheus_client.samples import Sample

from pipelines.events.state import DeliveryState, state_of
from pipelines.views.ci import GATES_SHOWN, delivery_junit, delivery_markdown
from pipelines.views.metrics import families
from pipelines.views.wording import broken_off, number
from registry.model import Event
from slo.metrics import OF_DELIVERIES, TIDEGATE


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("ttft_p95_canary_seconds", 0.101, "101 ms"),
        ("errors_increase_share", 0.005, "0.50%"),
        ("median_length_ratio", 1.0, "100%"),
        ("cache_bytes", 3 * 2**20, "3 MiB"),
        ("prompts", 24.0, "24"),
        ("canary_mean_score", 0.2134, "0.213"),
        ("evidence_fine", 4_512_345.6, "4,512,346"),
        ("requests", 1500.0, "1,500"),
        ("mirror_percent", 50, "50%"),
    ],
)
def test_a_number_takes_its_unit_from_its_name(name: str, value: float, text: str) -> None:
    assert number(name, value) == text


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
    for at in range(GATES_SHOWN):
        delivery.verdict(f"canary@eu-west-1/{at % 9 + 1}", f"gate{at}", "pass", "well")
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


def measured() -> list[Event]:
    """Copies, two weights of one canary, what was measured next to a verdict, scores, and a verdict of no region."""
    delivery = Delivery().open().offline(canary=0.93).traffic("shadow@eu-west-1", weight=0, mirror=100)
    judged = {"canary_mean_score": 0.8, "stable_mean_score": 0.9, "pairs": 30}
    beside = {"canary_safety_score": 1.0, "stable_safety_score": 0.95, "pairs": 31}
    said = {"gate": "judge", "outcome": "running", "region": "eu-west-1"}
    delivery.say("shadow@eu-west-1", "verdict", "so", **said, numbers=judged, auxiliary=beside)
    for weight, seen in ((25, {"canary_requests": 50}), (50, {"itl_p95_seconds": 1}), (50, {"canary_requests": 12})):
        delivery.verdict(f"canary@eu-west-1/{weight}", "latency", "running", "so", after=1, **seen)
    return delivery.say("bake@1", "verdict", "so", gate="health", outcome="pass", region=None).events


PAGE = Path(__file__).parents[4] / "docs/reference/metrics.md"
GOLDEN = Path(__file__).parents[3] / "golden/views"


def exported(events: Iterable[Event]) -> dict[str, Sample]:
    """Every sample by its name and labels; no two may have the same. The model has another name than the delivery."""
    story = state_of(events).model_copy(update={"model": "smollm"})
    samples = [sample for family in families(story, delivery="d1") for sample in family.samples]
    found = {f"{one.name} {dict(sorted(one.labels.items()))}": one for one in samples}
    assert len(found) == len(samples)
    return found


@pytest.mark.parametrize("story", [measured, delivered, slow])
def test_a_delivery_has_these_numbers(story: Callable[[], list[Event]]) -> None:
    lines = [f"{series} {sample.value:g}\n" for series, sample in exported(story()).items()]
    is_golden("".join(lines), GOLDEN / f"{story.__name__}.metrics.txt")


def test_every_metric_is_on_its_page_with_its_labels() -> None:
    rows = re.findall(r"^\| `(tidegate_\w+)` \| (.+?) \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    written = {metric: {*re.findall(r"`(\w+)`", labels), "instance"} for metric, labels in rows}
    assert {metric.name: set(metric.labels) for metric in TIDEGATE} == written


def test_every_metric_of_a_delivery_is_in_the_inventory_that_queries_are_checked_against() -> None:
    found = {sample.name: {*sample.labels, "instance"} for sample in exported(delivered()).values()}
    assert found == {metric.name: set(metric.labels) for metric in OF_DELIVERIES}
    assert exported([]) == {}, "nothing before it has begun"
