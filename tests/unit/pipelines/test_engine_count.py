"""How many engines a delivery to clusters needs at once, and what that costs."""

from __future__ import annotations

from pathlib import Path

import yaml
from fakes.delivery.world import a_spec

from pipelines.plan.region_objects import EngineCount, engine_counts
from pipelines.spec.delivery import Delivery
from tidegate.core.spec import parse_spec

EXAMPLE = (Path(__file__).parents[3] / "examples/kubernetes/delivery.yaml").read_text(encoding="utf-8")


def clusters(*, cost: object = None, **fleet: object) -> Delivery:
    """The example, with other values below `fleet`."""
    document = yaml.safe_load(EXAMPLE)
    document["fleet"] |= fleet
    if cost:
        document["cost"] = cost
    return parse_spec(yaml.safe_dump(document), Delivery, file="delivery.yaml")


def test_each_region_needs_its_engines_twice_at_the_height_of_a_trial() -> None:
    counts = engine_counts(clusters())
    assert [(each.region, each.serving, each.first, each.most, each.warm) for each in counts] == [
        ("eu-west-1", 4, 2, 4, 8),
        ("us-east-1", 8, 2, 8, 16),
        ("ap-south-1", 4, 2, 4, 8),
    ]


def test_what_they_cost_follows_from_the_spec() -> None:
    counts = engine_counts(clusters(cost={"per_engine_hour": 2.5, "currency": "EUR"}))
    assert [(each.per_hour, each.currency) for each in counts] == [(10.0, "EUR"), (20.0, "EUR"), (10.0, "EUR")]


def test_a_stable_that_gives_its_engines_away_needs_fewer() -> None:
    count = engine_counts(clusters(canary={"replicas": 2, "dynamic_stable": True}, previous=None, autoscale=None))[0]
    assert count == EngineCount(region="eu-west-1", serving=4, first=2, most=2, warm=0)


def test_this_machines_fleet_is_counted_elsewhere() -> None:
    assert engine_counts(a_spec()) == ()
