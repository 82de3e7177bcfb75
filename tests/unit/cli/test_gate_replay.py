"""`tidegate gate replay`: a recorded trial is held again, and what differs is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes.metrics.samples import Serving, traffic

from gates.analyses.errors import ErrorsGate
from gates.analyses.latency import LatencyGate
from gates.sequential_test import AnalysisPlan, SequentialTest
from gates.transcript import BatchLine, TermsLine, VerdictsLine, written
from tidegate.cli import main

pytestmark = pytest.mark.long

RUN = "0f3c2a51d2c94f0e8a6b0f3c2a51d2c9"
TRIALS = ("shadow@eu-west-1", "canary@eu-west-1")


def record(path: Path, trial: str, *, looks: int = 40) -> Path:
    held = SequentialTest(AnalysisPlan(latency=LatencyGate(), errors=ErrorsGate(max_increase=0.05)))
    lines = [written(TermsLine(trial=trial, terms=held.plan))]
    for batch in traffic(Serving(per_second=5, ttft=0.4), Serving(per_second=20), looks=looks):
        held.take(batch)
        lines += [written(BatchLine(step=f"{trial}/25", batch=batch))]
        lines += [written(VerdictsLine(step=f"{trial}/25", verdicts=held.verdicts()))]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A machine that has delivered once."""
    for trial in TRIALS:
        record(tmp_path / "state" / "deliveries" / RUN / "evidence" / f"{trial}.jsonl", trial, looks=5)
    return tmp_path / "state"


def test_a_file_is_replayed_change_by_change(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = record(tmp_path / "trial.jsonl", "canary@eu-west-1")
    assert main(["gate", "replay", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "canary@eu-west-1:"
    assert lines[1].startswith("1970-01-01 00:16:50  canary@eu-west-1/25  latency running: ")
    assert "latency fail: canary TTFT p95 is" in lines[3]
    assert lines[-1] == "same verdicts, bit for bit: 40 batches, 80 verdicts"


def test_a_number_that_was_changed_is_found_and_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = record(tmp_path / "trial.jsonl", "canary@eu-west-1")
    lines = file.read_text().splitlines()
    said = json.loads(lines[-1])
    said["verdicts"][1]["outcome"] = 4
    file.write_text("\n".join([*lines[:-1], json.dumps(said)]) + "\n")
    assert main(["gate", "replay", str(file)]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "not the same: line 81: canary@eu-west-1/25: gate errors: outcome: recorded fail, now pass"


def test_a_delivery_is_replayed_trial_by_trial(capsys: pytest.CaptureFixture[str], state: Path) -> None:
    assert main(["gate", "replay", RUN, "--state", str(state), "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(each["trial"], each["same"], each["batches"]) for each in document] == [
        ("canary@eu-west-1", True, 5),
        ("shadow@eu-west-1", True, 5),
    ]
    assert "running" in {change["outcome"] for change in document[0]["changes"]}
    assert document[0]["differences"] == []


def test_one_trial_of_a_delivery(capsys: pytest.CaptureFixture[str], state: Path) -> None:
    assert main(["gate", "replay", RUN, "--stage", "shadow@eu-west-1", "--state", str(state)]) == 0
    assert capsys.readouterr().out.startswith("shadow@eu-west-1:\n")


def test_a_trial_that_was_not_held_is_a_usage_error(capsys: pytest.CaptureFixture[str], state: Path) -> None:
    assert main(["gate", "replay", RUN, "--stage", "canary@mars", "--state", str(state)]) == 2
    assert capsys.readouterr().err == (
        f"tidegate: {RUN} has no trial canary@mars; known: canary@eu-west-1, shadow@eu-west-1\n"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "found no terms; expected the terms as the first line"),
        ('{"time": 1}\n', "found "),
        ('{"kind": "verdicts", "step": "x", "verdicts": []}\n', "found no terms; expected the terms as the first line"),
    ],
)
def test_what_is_no_transcript_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, problem: str
) -> None:
    path = tmp_path / "trial.jsonl"
    path.write_text(text)
    assert main(["gate", "replay", str(path)]) == 2
    assert capsys.readouterr().err.startswith(f"{path}:1: {problem}")
