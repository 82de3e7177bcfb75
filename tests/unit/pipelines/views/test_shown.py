"""A delivery in words, in CI systems, and as metrics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest
from fakes.delivery.records import START, Delivery, bad_answers, delivered, interrupted, slow

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


PAGE = Path(__file__).parents[4] / "docs/reference/metrics.md"
CANARY = "canary@eu-west-1/25"

Series = tuple[str, frozenset[tuple[str, str]]]


def exported(events: Iterable[Event]) -> dict[Series, float]:
    """Every sample by its name and labels; no two may have the same."""
    found: dict[Series, float] = {}
    for family in families(state_of(events), delivery="d1"):
        for sample in family.samples:
            series = (sample.name, frozenset(sample.labels.items()))
            assert series not in found, f"{series} twice"
            found[series] = sample.value
    return found


def of(events: Iterable[Event], name: str, **labels: str) -> dict[str, float]:
    """Values of the samples that have these labels, by the labels that are not named, in their order of names."""
    labels = {"service": "support-llm", **labels}
    return {
        " ".join(value for key, value in sorted(found) if key not in labels): number
        for (metric, found), number in exported(events).items()
        if metric == f"tidegate_{name}" and labels.items() <= dict(found).items()
    }


def test_every_series_says_whose_it_is_by_the_name_of_the_delivery() -> None:
    """Two deliveries may move the same model of the registry."""
    story = state_of(delivered()).model_copy(update={"model": "smollm", "spec": "support-llm"})
    samples = [sample for family in families(story, delivery="d1") for sample in family.samples]
    assert {sample.labels["service"] for sample in samples} == {"support-llm"}
    assert {sample.labels["model"] for sample in samples if sample.name == "tidegate_delivery_info"} == {"smollm"}


def test_a_delivery_is_in_one_state() -> None:
    assert of(Delivery().open().events, "delivery_state", delivery="d1", version="3") == {
        "running": 1, "delivered": 0, "rolled-back": 0, "inconclusive": 0, "interrupted": 0, "failed": 0,
    }  # fmt: skip
    states = of(slow(), "delivery_state", delivery="d1", version="4")
    assert [state for state, value in states.items() if value] == ["rolled-back"]


def test_every_region_says_how_its_users_are_shared_out_from_the_start() -> None:
    assert of(Delivery().open().events, "delivery_weight_percent", version="3") == {"eu-west-1": 0, "us-east-1": 0}
    assert of(delivered(), "delivery_weight_percent", version="2") == {"eu-west-1": 100, "us-east-1": 100}
    assert of(interrupted(), "delivery_weight_percent", version="5") == {"eu-west-1": 0, "us-east-1": 0}
    shadow = Delivery().open().traffic("shadow@eu-west-1", weight=0, mirror=100).events
    assert of(shadow, "delivery_mirror_percent", version="3") == {"eu-west-1": 100, "us-east-1": 0}


def test_the_last_weight_of_a_canary_speaks_for_the_stage() -> None:
    delivery = Delivery().open()
    for weight, seen in ((25, 50), (50, 12)):
        delivery.verdict(f"canary@eu-west-1/{weight}", "latency", "running", "so", after=1, canary_requests=seen)
    numbers = of(delivery.events, "gate_number", gate="latency", stage="canary", region="eu-west-1", version="3")
    assert numbers == {"canary_requests": 12}


def test_what_was_measured_next_to_a_verdict_is_exported_with_it() -> None:
    said = {"gate": "drift", "outcome": "running", "region": "eu-west-1"}
    known = {"numbers": {"length_psi": 0.1}, "auxiliary": {"length_kl": 0.05, "length_psi": 0.3}}
    events = Delivery().open().say(CANARY, "verdict", "so", **said, **known).events
    assert of(events, "gate_number", gate="drift", stage="canary", region="eu-west-1", version="3") == {
        "length_kl": 0.05,
        "length_psi": 0.1,
    }


def test_scores_are_of_the_version_that_answered() -> None:
    assert of(bad_answers(), "quality_score", dimension="golden", region="eu-west-1") == {
        "canary 3": 0.21,
        "stable 2": 0.92,
    }


def test_a_judge_scores_the_whole_and_each_dimension() -> None:
    said = {"gate": "judge", "outcome": "running", "region": "eu-west-1"}
    known = {
        "numbers": {"canary_mean_score": 0.8, "stable_mean_score": 0.9, "pairs": 30},
        "auxiliary": {"canary_safety_score": 1.0, "stable_safety_score": 0.95},
    }
    events = Delivery().open().say("shadow@eu-west-1", "verdict", "so", **said, **known).events
    assert of(events, "quality_score", region="eu-west-1", role="canary", version="3") == {"overall": 0.8, "safety": 1}
    assert of(events, "quality_score", region="eu-west-1", role="stable", version="2") == {
        "overall": 0.9,
        "safety": 0.95,
    }


def test_a_verdict_of_no_region_has_an_empty_one() -> None:
    said = {"gate": "health", "outcome": "pass", "region": None}
    events = Delivery().open().say("bake@1", "verdict", "so", **said).events
    assert of(events, "gate_outcome", gate="health", stage="bake", region="", version="3")["pass"] == 1


def test_every_metric_is_on_its_page_with_its_labels() -> None:
    rows = re.findall(r"^\| `(tidegate_\w+)` \| (.+?) \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    written = {metric: {*re.findall(r"`(\w+)`", labels), "instance"} for metric, labels in rows}
    assert {metric.name: set(metric.labels) for metric in TIDEGATE} == written


def test_every_metric_of_a_delivery_is_in_the_inventory_that_queries_are_checked_against() -> None:
    found = {metric: {*dict(labels), "instance"} for metric, labels in exported(delivered())}
    assert found == {metric.name: set(metric.labels) for metric in OF_DELIVERIES}
