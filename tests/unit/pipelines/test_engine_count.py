"""What a cluster has to hold for a delivery: its engines at the height of a trial, what a node has, a guard."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from pipelines.plan.region_objects import engine_counts, guard_image, unprotected
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
        ("eu-west-1", 4, 2, 4, 4),
        ("us-east-1", 8, 2, 8, 8),
        ("ap-south-1", 4, 2, 4, 4),
    ]


def test_what_they_cost_follows_from_the_spec() -> None:
    counts = engine_counts(clusters(cost={"per_engine_hour": 2.5, "currency": "EUR"}))
    assert [(each.per_hour, each.currency) for each in counts] == [(10.0, "EUR"), (20.0, "EUR"), (10.0, "EUR")]


EXAMPLES = Path(__file__).parents[3] / "examples"
WITHOUT_WORKFLOW = EXAMPLE.partition("\nworkflow:")[0]
OWN = "registry.example.com/guard@sha256:" + "4" * 64
FLEET = "fleet:\n"


def spec(text: str, guard: str = "") -> Delivery:
    return parse_spec(text.replace(FLEET, f"{FLEET}  guard: {guard}\n" if guard else FLEET), Delivery, file="d.yaml")


def test_it_is_the_one_that_steps_run_in_unless_another_is_named() -> None:
    assert guard_image(spec(EXAMPLE)) == "registry.example.com/tidegate@sha256:" + "5" * 64
    assert guard_image(spec(EXAMPLE, f"{{image: '{OWN}'}}")) == OWN
    assert guard_image(spec(WITHOUT_WORKFLOW, f"{{image: '{OWN}'}}")) == OWN


@pytest.mark.parametrize(
    ("text", "guard", "why"),
    [
        (WITHOUT_WORKFLOW, "", "neither `fleet.guard` nor a `workflow` names an image"),
        (EXAMPLE, "null", "`fleet.guard` is null"),
    ],
    ids=["no image", "none wanted"],
)
def test_where_there_is_none_it_is_said_what_that_means(text: str, guard: str, why: str) -> None:
    found = spec(text, guard)
    assert guard_image(found) == ""
    assert list(unprotected(found)) == [
        f"no region has a guard: {why}; a trial without a carrier for 15m goes on until somebody says "
        "`tidegate rollback`"
    ]


def test_nothing_is_said_where_there_is_one_or_no_cluster() -> None:
    assert list(unprotected(spec(EXAMPLE))) == []
    here = parse_spec((EXAMPLES / "demo/delivery.yaml").read_text(), Delivery, file="d.yaml")
    assert (guard_image(here), list(unprotected(here))) == ("", [])


def test_each_protection_that_is_turned_off_is_told() -> None:
    text = EXAMPLE.replace(FLEET, f"{FLEET}  unavailable: null\n  network: null\n")
    assert list(unprotected(spec(text))) == [
        "`fleet.unavailable` is null: who drains nodes may take all engines of a region at once",
        "`fleet.network` is null: any pod of the cluster may ask an engine, past all weights, and engines may reach "
        "any address",
    ]
