"""How often metrics are scraped, and how often evidence may be looked at therefore."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from fakes.clusters.region import a_fleet
from fakes.delivery.world import SPEC

from pipelines.spec.delivery import Delivery
from tidegate.core.spec import SpecError, parse_spec

CLUSTERS = "fleet: " + json.dumps(a_fleet("eu-west-1", "us-east-1").model_dump(mode="json", exclude_unset=True))


def spec(*lines: str, look: str = "") -> str:
    """The usual spec with more lines, and a look where one is given."""
    return SPEC.replace("gates:", f"gates:\n  budget: {{poll_interval: {look}}}" if look else "gates:") + "\n".join(
        lines
    )


def read(text: str) -> Delivery:
    return parse_spec(text, Delivery, file="delivery.yaml")


def problem(text: str) -> str:
    with pytest.raises(SpecError) as caught:
        read(text)
    return str(caught.value)


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


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            spec(CLUSTERS, look="10s"),
            "8: gates.budget.poll_interval: found 10s; "
            "expected at least 15s, three scrapes: `metrics.scrape_interval` is 5s",
        ),
        (
            spec(look="5s"),
            "8: gates.budget.poll_interval: found 5s; "
            "expected at least 6s, three scrapes: `metrics.scrape_interval` is 2s",
        ),
        (
            spec("metrics: {scrape_interval: 5s}"),
            "18: metrics.scrape_interval: found 5s; expected 2s, in which the fleet on this machine scrapes",
        ),
        (
            spec(CLUSTERS, "metrics: {scrape_interval: 15}"),
            "19: metrics.scrape_interval: found 15; expected a duration such as 250ms, 30s, 10m, 2h or 30d",
        ),
        (
            spec(CLUSTERS, "metrics: {scrape_interval: 1m}"),
            "19: metrics.scrape_interval: found '1m'; expected less than or equal to 30s",
        ),
    ],
)
def test_what_gates_could_not_count_with_is_told_in_one_line(text: str, sentence: str) -> None:
    assert problem(text) == f"delivery.yaml:{sentence}"
