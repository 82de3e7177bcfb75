"""`tidegate plan GATES`: what a person reads, what a program reads, and the exit code that CI acts on."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tidegate.cli import main
from tidegate.core.errors import ExitCode

GATES = """
apiVersion: tidegate/v1
kind: Gates
metadata: {name: support-llm}
gates:
  latency: {max_increase: 20%}
  errors: {max_increase: 1pp}
  judge: {max_drop: 0.1}
"""


@pytest.fixture
def gates(tmp_path: Path) -> str:
    path = tmp_path / "gates.yaml"
    path.write_text(GATES, encoding="utf-8")
    return str(path)


def test_every_gate_is_a_line_with_its_needs_its_times_and_what_it_sees(
    gates: str, capsys: pytest.CaptureFixture[str]
) -> None:
    busy = ["--requests-per-second", "200", "--weight", "5", "--pairs-per-second", "2"]
    assert main(["plan", gates, *busy]) == ExitCode.DELIVERED
    name, head, latency, errors, judge, *_ = capsys.readouterr().out.splitlines()
    assert name == "support-llm"
    assert head.split()[:3] == ["gate", "counted", "by"]
    told = r"[\d,]+ {} in .* +{} +[\d,]+ {} in .* from .*"
    assert re.match("latency +users +" + told.format("requests", "20 % slower", "requests"), latency), latency
    assert re.match("errors +users +" + told.format("requests", "1 pp more", "requests"), errors), errors
    assert re.match("judge +probe +" + told.format("pairs", "0.1 lower", "pairs"), judge), judge


def test_a_gate_that_comes_too_late_is_exit_3_and_says_what_would_mend_it(
    gates: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", gates, "--requests-per-second", "4"]) == ExitCode.INCONCLUSIVE
    out = capsys.readouterr().out
    assert "(too late)" in out
    assert re.search(r"errors would be in time with one of:\n  `within` of at least \w+\n", out)


def test_a_program_reads_every_number_and_every_assumption(gates: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--requests-per-second", "200", "--error-rate", "2%", "--spread", "0.4", "--stable-pods", "3"]
    assert main(["plan", gates, *asked, "--output", "json"]) == ExitCode.DELIVERED
    told = json.loads(capsys.readouterr().out)
    assert told["name"] == "support-llm"
    assert told["expected"] | {"error_rate": 0.02, "spread": 0.4, "stable_pods": 3} == told["expected"]
    assert [gate["gate"] for gate in told["gates"]] == ["latency", "errors", "judge"]
    assert told["gates"][0]["canary_requests_to_pass"] > 40
    # Nobody said how many pairs there are.
    assert told["gates"][2]["seconds_to_pass"] is None


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--error-rate", "0.5"], "--error-rate: got 0.5"),
        (["--error-rate", "200%"], "--error-rate: got 200%"),
        (["--within", "soon"], "'--within': found 'soon'; expected a duration such as"),
    ],
)
def test_what_was_typed_wrongly_is_said(
    gates: str, wrong: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", gates, *wrong]) == ExitCode.USAGE
    assert said in capsys.readouterr().err
