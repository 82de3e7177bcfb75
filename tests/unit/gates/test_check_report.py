"""Reports of one judgement: a CI system must not take what no one knows for what is well."""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gates.model import GateOutcome, Verdict
from gates.reports.check_report import REPORTS, CheckReport, as_text

GOLDEN = Path(__file__).parents[2] / "golden/views"
REASON = "canary fails 3 of 90 | stable 1 of 900 <5xx>"


def judgement(*outcomes: GateOutcome, reason: str = REASON, not_asked: tuple[str, ...] = ()) -> CheckReport:
    gates = ("latency", "errors", "agreement", "judge")
    verdicts = tuple(
        Verdict(gate=gate, outcome=outcome, reason=reason, numbers={"pairs": 3.0})
        for gate, outcome in zip(gates, outcomes, strict=False)
    )
    return CheckReport(
        name="support-llm",
        outcome=max(outcomes),
        batches=1200,
        since=1_700_000_000.0,
        until=1_700_001_800.5,
        verdicts=verdicts,
        not_asked=not_asked,
    )


ALL = judgement(GateOutcome.PASS, GateOutcome.FAIL, GateOutcome.INCONCLUSIVE, GateOutcome.ERROR, not_asked=("quality",))


@pytest.mark.parametrize("form", REPORTS)
def test_a_judgement_looks_like_this(form: str) -> None:
    """After an intended change: `TIDEGATE_REGENERATE=1` writes the golden files; read the diff."""
    told, expected = REPORTS[form](ALL), GOLDEN / f"gates.{form}"
    if "TIDEGATE_REGENERATE" in os.environ:
        assert "CI" not in os.environ, "what CI compares with is written by people"
        expected.write_text(told)
    assert told == expected.read_text()


def test_text_on_a_terminal_breaks_reasons_below_themselves() -> None:
    long = judgement(GateOutcome.FAIL, reason="canary is slower than stable by more than is tolerated here")
    assert as_text(long, 50).splitlines()[1:] == [
        "fail  latency  canary is slower than stable by",
        "               more than is tolerated here",
    ]
    assert as_text(long, 10).splitlines()[1] == "fail  latency  canary is slower"


@pytest.mark.parametrize(
    "reason",
    ["a\x00b\x1b[31m", "\ufffe<![CDATA[ ]]> & \"'", "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16")],
)
def test_junit_is_xml_whatever_a_source_wrote(reason: str) -> None:
    root = ElementTree.fromstring(REPORTS["junit"](judgement(GateOutcome.FAIL, reason=reason)))
    assert len(root[0]) == 1


@pytest.mark.parametrize("kind", REPORTS)
def test_a_judgement_of_nothing_can_be_told(kind: str) -> None:
    nothing = CheckReport(name="x", outcome=GateOutcome.INCONCLUSIVE, batches=0, since=None, until=None, verdicts=())
    assert REPORTS[kind](nothing).endswith("\n")
