"""Where a guard's image comes from, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.plan.region_objects import guard_image, unprotected
from pipelines.spec.delivery import Delivery
from tidegate.core.spec import SpecError, parse_spec

EXAMPLES = Path(__file__).parents[3] / "examples"
CLUSTERS = (EXAMPLES / "kubernetes/delivery.yaml").read_text()
WITHOUT_WORKFLOW = CLUSTERS.partition("\nworkflow:")[0]
OWN = "registry.example.com/guard@sha256:" + "4" * 64
FLEET = "fleet:\n"


def spec(text: str, guard: str = "") -> Delivery:
    return parse_spec(text.replace(FLEET, f"{FLEET}  guard: {guard}\n" if guard else FLEET), Delivery, file="d.yaml")


def test_it_is_the_one_that_steps_run_in_unless_another_is_named() -> None:
    assert guard_image(spec(CLUSTERS)) == "registry.example.com/tidegate@sha256:" + "5" * 64
    assert guard_image(spec(CLUSTERS, f"{{image: '{OWN}'}}")) == OWN
    assert guard_image(spec(WITHOUT_WORKFLOW, f"{{image: '{OWN}'}}")) == OWN


@pytest.mark.parametrize(
    ("text", "guard", "why"),
    [
        (WITHOUT_WORKFLOW, "", "neither `fleet.guard` nor a `workflow` names an image"),
        (CLUSTERS, "null", "`fleet.guard` is null"),
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
    assert list(unprotected(spec(CLUSTERS))) == []
    here = parse_spec((EXAMPLES / "demo/delivery.yaml").read_text(), Delivery, file="d.yaml")
    assert (guard_image(here), list(unprotected(here))) == ("", [])


def test_an_image_that_may_be_another_tomorrow_is_refused() -> None:
    with pytest.raises(SpecError, match=r"fleet.guard.image: found .*which may be another image tomorrow"):
        spec(CLUSTERS, "{image: 'registry.example.com/guard:1'}")


def test_each_protection_that_is_turned_off_is_told() -> None:
    text = CLUSTERS.replace(FLEET, f"{FLEET}  unavailable: null\n  network: null\n")
    assert list(unprotected(spec(text))) == [
        "`fleet.unavailable` is null: who drains nodes may take all engines of a region at once",
        "`fleet.network` is null: any pod of the cluster may ask an engine, past all weights, and engines may reach "
        "any address",
    ]
