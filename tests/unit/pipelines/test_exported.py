"""What Prometheus reads of a delivery: which series there are, with which labels, and what they say."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from fakes.delivery.records import Delivery, bad_answers, delivered, interrupted, slow

from gates.model import GateOutcome
from pipelines.events.state import DeliveryState, state_of
from pipelines.views.metrics import families
from registry.model import Event
from slo.metrics import OF_DELIVERIES, TIDEGATE

PAGE = Path(__file__).parents[3] / "docs/reference/metrics.md"
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


def test_before_a_delivery_has_started_there_is_nothing() -> None:
    assert list(families(DeliveryState(), delivery="d1")) == []


def test_a_delivery_is_known_by_its_id_and_versions() -> None:
    info = of(delivered(), "delivery_info", delivery="d1", model="support-llm", version="2", champion="1")
    assert info == {"": 1}


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


def test_a_gate_has_one_outcome_of_all_that_there_are() -> None:
    place = {"gate": "latency", "stage": "canary", "region": "eu-west-1", "version": "4"}
    outcomes = of(slow(), "gate_outcome", **place)
    assert outcomes.keys() == {str(outcome) for outcome in GateOutcome}
    assert [outcome for outcome, value in outcomes.items() if value] == ["fail"]


def test_the_last_weight_of_a_canary_speaks_for_the_stage() -> None:
    delivery = Delivery().open()
    for weight, seen in ((25, 50), (50, 12)):
        delivery.verdict(f"canary@eu-west-1/{weight}", "latency", "running", "so", after=1, canary_requests=seen)
    numbers = of(delivery.events, "gate_number", gate="latency", stage="canary", region="eu-west-1", version="3")
    assert numbers == {"canary_requests": 12}


def test_a_number_that_the_last_verdict_lacks_is_gone() -> None:
    delivery = Delivery().open().verdict(CANARY, "latency", "running", "so", canary_requests=5, old=1)
    delivery.verdict(CANARY, "latency", "running", "so", after=1, canary_requests=7)
    assert of(delivery.events, "gate_number", gate="latency", version="3") == {"canary_requests eu-west-1 canary": 7}


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
