"""A Prometheus of a team that has nothing of anything; tests add what it has."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gates.analyses.queries.asked import Window
from gates.evidence.batch import Buckets
from gates.model import ArmKey, NoData
from gates.reports.gate_file import GateFile
from tidegate.core.spec import SpecError, parse_spec


class FakeQueries:
    """A `QuerySource`."""

    def counted(self, selector: str, arm: ArmKey, window: Window) -> dict[str, int]:
        return {}

    def summed(self, selector: str, arm: ArmKey, window: Window) -> dict[str, float]:
        return {}

    def distributed(self, selector: str, arm: ArmKey, window: Window) -> dict[str, Buckets]:
        return {}

    def value(self, query: str, arm: ArmKey, window: Window) -> float | NoData:
        return NoData(reason=f"Prometheus has nothing for {query}")


def refusal_of(settings: dict[str, Any]) -> str:
    """What is said of a file of kind Gates with one gate, called `mine`."""
    given = {name: value for name, value in settings.items() if value is not None}
    file = {"apiVersion": "tidegate/v1", "kind": "Gates", "gates": {"mine": given}}
    with pytest.raises(SpecError, match=r"gates\.mine") as raised:
        parse_spec(json.dumps(file), GateFile, file="gates.yaml")
    return str(raised.value)
