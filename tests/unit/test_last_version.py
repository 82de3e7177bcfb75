"""What the last version documented still holds: its commands and options, and its specs.

`tests/golden/last_version` was written from the commit before the packages were rebuilt: every command and option of
its `docs/cli.md`, and every delivery spec among its examples and golden files.
"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import typer

from gates.spec import Budget
from pipelines.events.payloads import VerdictPayload
from pipelines.spec.delivery import Delivery
from rollouts.manifests.pod_spec import AutoscaleSpec
from rollouts.manifests.spec import CanarySpec
from rollouts.model import ForeignChange, ForeignObject, RegionState
from tidegate.cli import command_tree
from tidegate.cli.views.status import region_data
from tidegate.core.model import SpecModel
from tidegate.core.spec import SpecError, load_spec, parse_spec

KEPT = Path(__file__).parents[1] / "golden/last_version"
COMMANDS: dict[str, list[str]] = json.loads((KEPT / "commands.json").read_text(encoding="utf-8"))
SPECS = {path.stem: path for path in sorted((KEPT / "specs").glob("*.yaml"))}
REFUSED = {"kubernetes": "fleet.gateway.direct"}
"""By spec: what a later version refuses on purpose, named in the changelog's section on security."""


def command(name: str) -> Any:
    """The command of that name, hidden ones included."""
    found: Any = command_tree()
    for word in name.split():
        found = found.commands[word]
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there_with_every_option(name: str) -> None:
    found = command(name)
    parameters = found.get_params(typer.Context(found))
    options = {each for parameter in parameters for each in (*parameter.opts, *parameter.secondary_opts)}
    assert set(COMMANDS[name]) - {"--help"} <= options


@pytest.mark.parametrize("name", sorted(SPECS.keys() - REFUSED))
def test_every_spec_still_loads(name: str) -> None:
    assert load_spec(SPECS[name], Delivery).metadata.name


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_for_safety_is_refused_in_one_line_and_loads_without_it(name: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as refusal:
        load_spec(SPECS[name], Delivery)
    (problem,) = refusal.value.problems
    assert REFUSED[name] in str(problem)
    rest = tmp_path / "delivery.yaml"
    rest.write_text(SPECS[name].read_text(encoding="utf-8").replace(", direct: true", ""), encoding="utf-8")
    assert load_spec(rest, Delivery).metadata.name


def test_names_of_the_last_version_in_ledgers_are_read() -> None:
    verdict = {"gate": "drift", "outcome": "pass", "beside": {"length_kl": 0.1}}  # codespell:ignore beside
    assert VerdictPayload.model_validate(verdict).auxiliary == {"length_kl": 0.1}


def test_names_of_the_last_version_are_read_from_a_fleet_that_runs_and_written_by_status() -> None:
    change = {"version": "9", "reason": "argocd-application-controller"}
    theirs = {"kind": "Service", "name": "chat-stable", "namespace": "support", "owner": "Helm"}
    state = RegionState.model_validate(
        {
            "region": "eu-west-1",
            "phase": "unknown",
            "entry": "http://127.0.0.1:80",
            "strangers": [theirs],  # codespell:ignore strangers
            "foreign_wish": change,  # codespell:ignore wish
        }
    )
    assert state.foreign_objects == (ForeignObject.model_validate(theirs),)
    assert state.foreign_change == ForeignChange.model_validate(change)
    data = region_data(state)
    assert data["strangers"] == data["foreign_objects"] == [theirs]  # codespell:ignore strangers
    assert data["foreign_wish"] == data["foreign_change"] == change  # codespell:ignore wish


@pytest.mark.parametrize(
    ("section", "old", "new"),
    [
        (AutoscaleSpec, {"least": 2, "most": 8, "ttft": "500ms"}, {"min_replicas": 2, "max_replicas": 8}),
        (CanarySpec, {"least": 2}, {"min_replicas": 2}),
        (Budget, {"look": "6s"}, {"poll_interval": timedelta(seconds=6)}),
    ],
)
def test_keys_of_the_last_version_mean_what_they_meant(
    section: type[SpecModel], old: dict[str, object], new: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    read = parse_spec(json.dumps(old), section, file="a.yaml")
    assert {key: getattr(read, key) for key in new} == new
    assert caplog.messages == [
        f"a.yaml: `{key}` is now `{section.former_keys[key]}`; the old name goes with the next release"
        for key in old
        if key in section.former_keys
    ]
