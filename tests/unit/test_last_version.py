"""What the last version documented still holds: its commands and options, and its specs.

`tests/golden/last_version` was written from the commit before the packages were rebuilt: every command and option of
its `docs/cli.md`, and every delivery spec among its examples and golden files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from pipelines.events.payloads import VerdictPayload
from pipelines.spec.delivery import Delivery
from rollouts.model import ForeignObject, RegionState
from tidegate.cli import command_line
from tidegate.cli.views.status import region_data
from tidegate.core.spec import SpecError, load_spec

KEPT = Path(__file__).parents[1] / "golden/last_version"
COMMANDS: dict[str, list[str]] = json.loads((KEPT / "commands.json").read_text(encoding="utf-8"))
SPECS = {path.stem: path for path in sorted((KEPT / "specs").glob("*.yaml"))}
REFUSED = {"kubernetes": "fleet.gateway.direct"}
"""By spec: what a later version refuses on purpose, named in the changelog's section on security."""


def command(name: str) -> Any:
    """The command of that name, hidden ones included."""
    found: Any = typer.main.get_command(command_line())
    for word in name.split():
        found = found.commands[word]
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there_with_every_option(name: str) -> None:
    options = {each for parameter in command(name).params for each in (*parameter.opts, *parameter.secondary_opts)}
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
    theirs = {"kind": "Service", "name": "chat-stable", "namespace": "support", "owner": "Helm"}
    state = RegionState.model_validate(
        {
            "region": "eu-west-1",
            "phase": "unknown",
            "entry": "http://127.0.0.1:80",
            "strangers": [theirs],  # codespell:ignore strangers
            "foreign_wish": None,  # codespell:ignore wish
        }
    )
    assert state.foreign_objects == (ForeignObject.model_validate(theirs),)
    data = region_data(state)
    assert data["strangers"] == data["foreign_objects"] == [theirs]  # codespell:ignore strangers
