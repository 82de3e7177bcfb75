"""What `tidegate init` writes is right as it is, and what was there stays there."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from fakes.delivery.world import a_version

from pipelines.adapters.specs import read_delivery
from pipelines.plan.planner import make_plan
from pipelines.spec.delivery import Delivery
from pipelines.spec.policy import golden_set
from tidegate.cli import main
from tidegate.core.spec import parse_spec


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that `tidegate init` has filled."""
    folder = tmp_path_factory.mktemp("started") / "support"
    assert main(["init", str(folder)]) == 0
    return folder


def test_its_gates_can_pass_a_healthy_version_at_its_own_traffic(started: Path) -> None:
    spec = read_delivery(started / "delivery.yaml")
    plan = make_plan(spec, a_version("2"), a_version("1"), prompts=len(golden_set(spec, started)))
    forecasts = [forecast for step in plan.steps for gate in step.gates for forecast in gate.forecasts]
    assert {forecast.gate for forecast in forecasts} == {"quality", "latency", "errors", "agreement"}
    assert all(forecast.smallest_regression_share is not None for forecast in forecasts)


def test_what_python_writes_the_spec_reads_again(started: Path) -> None:
    spec = read_delivery(started / "delivery.yaml")
    again = yaml.safe_dump(spec.model_dump(mode="json", by_alias=True, exclude_unset=True))
    assert parse_spec(again, Delivery, file="again.yaml").read_from(spec.path) == spec
