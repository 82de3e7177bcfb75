"""What is rendered for each kind of fleet, whole: `tests/golden/manifests/CASE/fleet.yaml` gives `expected.yaml`.

After an intended change: `TIDEGATE_REGENERATE=1 pytest tests/unit/rollouts/manifests/test_golden.py`; read the diff.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from fakes.fleet import fleet_spec, read_fleet, release
from fakes.schemas import problems_in

from rollouts.manifests.manifest import Release
from rollouts.manifests.render import render
from tidegate.core.model import Json
from tidegate.core.yaml_text import yaml_text

ROOT = Path(__file__).parents[4]
GOLDEN = ROOT / "tests/golden/manifests"
EXPORTED = ROOT / "examples/slo/exported"
WATCHED = "support-llm.availability-background"

GUARD = "registry.example.com/tidegate@sha256:" + "5" * 64

ENGINES: dict[str, Release] = {
    "canary": release(accelerator="nvidia-l40s", guard=GUARD),
    "shared-cache": release(accelerator="nvidia-h200-141gb", accelerators=8, samples=True, driver=True),
    "istio": release(accelerator="nvidia-h100-80gb", accelerators=2, guard=GUARD, driver=True),
    "keda": release(accelerator="nvidia-a100-80gb"),
}
"""A guard for each kind of route; samples, rights and policies where a spec asks for them."""


def exported(file: str) -> Iterator[Json]:
    yield from yaml.safe_load_all((EXPORTED / file).read_text())


def rendered(case: str) -> tuple[Json, ...]:
    """The first case has objects of the room `slo` too; the others show what is special about them."""
    fleet = read_fleet((GOLDEN / case / "fleet.yaml").read_text())
    if case != "canary":
        return render(fleet, ENGINES[case])
    watching = [template for template in exported("analysis-templates.yaml") if template["metadata"]["name"] == WATCHED]
    return render(fleet, ENGINES[case], analyses=watching, monitors=tuple(exported("pod-monitors.yaml")))


@pytest.mark.parametrize("case", ENGINES)
def test_a_region_gets_these_objects(case: str) -> None:
    written = "".join(f"---\n{yaml_text(each)}" for each in rendered(case))
    expected = GOLDEN / case / "expected.yaml"
    if "TIDEGATE_REGENERATE" in os.environ:
        assert "CI" not in os.environ, "what CI compares with is written by people"
        expected.write_text(written)
    assert written == expected.read_text()


@pytest.mark.parametrize("case", ENGINES)
def test_each_of_them_is_valid_to_the_letter(case: str) -> None:
    found = {(each["kind"], each["metadata"]["name"]): problems_in(each) for each in rendered(case)}
    assert {name: problems for name, problems in found.items() if problems} == {}


def test_a_field_that_a_kind_does_not_know_is_found() -> None:
    """argo-rollouts#4569: an API server that is not asked drops it without a word."""
    rollout = rendered("keda")[-1]
    rollout["spec"]["strategy"]["canary"]["trafficRouting"]["gatewayAPI"] = {"httpRoute": "chat"}
    assert "'gatewayAPI' was unexpected" in str(problems_in(rollout))


def test_every_case_has_an_engine() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == set(ENGINES)


def test_a_region_gets_no_more_unless_its_spec_asks_for_it() -> None:
    """With the PodMonitor of a delivery they are 13."""
    guard = {"Deployment": 1, "ServiceAccount": 1, "Role": 1, "RoleBinding": 1, "NetworkPolicy": 1}
    least = {"ServiceAccount": 1, "Service": 2, "HTTPRoute": 1, "Rollout": 1}
    protected = Counter(least) + Counter(guard) + Counter({"PodDisruptionBudget": 1, "NetworkPolicy": 1})
    assert Counter(each["kind"] for each in render(fleet_spec(), release(guard=GUARD))) == protected
    bare = render(fleet_spec(unavailable=None, network=None), release())
    assert Counter(each["kind"] for each in bare) == least
