"""Gates and what they say of batches, and a Prometheus of a team that has nothing; tests add what it has."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from gates.analyses.queries import Window
from gates.evidence.batch import Batch, Buckets
from gates.model import ArmKey, GateOutcome, NoData, Verdict
from gates.reports.gate_file import GateFile
from gates.sequential_test import AnalysisPlan, SequentialTest, analysis_plan_of
from gates.spec import Gates
from tidegate.core.spec import SpecError, parse_spec


def plan_of(gates: Mapping[str, Any], *, share: float = 1.0) -> AnalysisPlan:
    """Of gates as a spec has them."""
    given = Gates.model_validate(gates)
    return analysis_plan_of(given, given.asked, sources={}, share=share)


def decided(terms: AnalysisPlan, batches: Iterable[Batch]) -> Verdict:
    """The first verdict of its one gate that decides, or the last of all."""
    test = SequentialTest(terms)
    for batch in batches:
        test.take(batch)
        (verdict,) = test.verdicts()
        if verdict.outcome in (GateOutcome.PASS, GateOutcome.FAIL):
            return verdict
    (verdict,) = test.verdicts(deadline_passed=True)
    return verdict


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
