"""What a doctor asks Prometheus in place of the gates and SLOs of a delivery."""

from __future__ import annotations

from pathlib import Path

import promql_parser as promql
import pytest
from fakes.metrics.queries import metric_of

from pipelines.doctor import asked_of_prometheus
from pipelines.spec.delivery import Delivery
from rollouts.doctor.model import metrics_of
from tidegate.core.spec import load_spec

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


def test_every_question_is_promql(asked: dict[str, str]) -> None:
    for query in asked.values():
        promql.parse(query)


def test_every_question_is_on_metrics_that_engines_export(asked: dict[str, str]) -> None:
    names = {name for query in asked.values() for name in metrics_of(query)}
    assert {name for name in names - OF_EVERY_TARGET if metric_of(name) is None} == set()


def test_a_gate_that_no_stage_asks_is_not_asked_for() -> None:
    spec = load_spec(EXAMPLES / "kubernetes/delivery.yaml", Delivery)
    quiet = spec.model_copy(update={"stages": spec.stages[:1]})
    assert {one.asked_by.split()[0] for one in asked_of_prometheus(quiet, "eu-west-1")} == {"every", "SLO"}
