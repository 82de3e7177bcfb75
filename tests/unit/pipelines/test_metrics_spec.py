"""What gates read of Prometheus: what a spec may say of it, and what the doctor asks."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from fakes.clusters.region import a_fleet
from fakes.delivery.world import SPEC
from fakes.metrics.queries import metric_of

from pipelines.doctor import asked_of_prometheus
from pipelines.spec.delivery import Delivery
from rollouts.doctor.model import metrics_of
from tidegate.core.spec import load_spec, parse_spec

CLUSTERS = "fleet: " + json.dumps(a_fleet("eu-west-1", "us-east-1").model_dump(mode="json", exclude_unset=True))


def spec(*lines: str, look: str = "") -> str:
    """The usual spec with more lines, and a look where one is given."""
    return SPEC.replace("gates:", f"gates:\n  budget: {{poll_interval: {look}}}" if look else "gates:") + "\n".join(
        lines
    )


def read(text: str) -> Delivery:
    return parse_spec(text, Delivery, file="delivery.yaml")


@pytest.mark.parametrize(
    ("lines", "interval", "look"),
    [
        ((CLUSTERS,), 5, 15),
        ((CLUSTERS, "metrics: {scrape_interval: 15s}"), 15, 45),
        ((CLUSTERS, "metrics: {scrape_interval: 2s}"), 2, 10),
        ((), 2, 10),
        (("metrics: {scrape_interval: 2s}",), 2, 10),
    ],
)
def test_a_look_is_three_scrapes_and_ten_seconds_at_least(lines: tuple[str, ...], interval: int, look: int) -> None:
    found = read(spec(*lines))
    assert (found.scrape_interval, found.look) == (timedelta(seconds=interval), timedelta(seconds=look))


def test_a_look_that_is_asked_for_is_had() -> None:
    assert read(spec(look="6s")).look == timedelta(seconds=6)
    assert read(spec(CLUSTERS, look="1m")).look == timedelta(minutes=1)


EXAMPLES = Path(__file__).parents[3] / "examples"
OF_EVERY_TARGET = {"up"}


@pytest.fixture(scope="module")
def asked() -> dict[str, str]:
    spec = load_spec(EXAMPLES / "kubernetes/delivery.yaml", Delivery)
    return {f"{one.asked_by}: {one.query}": one.query for one in asked_of_prometheus(spec, "eu-west-1")}


def test_everybody_who_decides_is_asked_for(asked: dict[str, str]) -> None:
    askers = {name.split(": ")[0] for name in asked}
    assert askers == {
        "every gate",
        "gate latency",
        "gate errors",
        "SLO availability",
        "SLO first-token",
    }


def test_every_question_is_on_metrics_that_engines_export(asked: dict[str, str]) -> None:
    names = {name for query in asked.values() for name in metrics_of(query)}
    assert {name for name in names - OF_EVERY_TARGET if metric_of(name) is None} == set()


def test_a_gate_that_no_stage_asks_is_not_asked_for() -> None:
    spec = load_spec(EXAMPLES / "kubernetes/delivery.yaml", Delivery)
    quiet = spec.model_copy(update={"stages": spec.stages[:1]})
    assert {one.asked_by.split()[0] for one in asked_of_prometheus(quiet, "eu-west-1")} == {"every", "SLO"}
