"""`tidegate gate stream`: one answer for each line, and an exit code that says how it ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes.metrics.samples import Serving, traffic
from fakes.terminal import pipe_in

from tidegate.cli import main

GATES = "apiVersion: tidegate/v1\nkind: Gates\ngates: {latency: {}, errors: {max_increase: 5pp}}\n"
LOOKS = 60


def evidence(looks: int = LOOKS, *, ttft: float = 0.2) -> list[bytes]:
    stable, canary = Serving(per_second=20, failing=0.002), Serving(per_second=5, failing=0.002, ttft=ttft)
    return [batch.model_dump_json().encode() for batch in traffic(canary, stable, looks=looks)]


@pytest.fixture
def gates(tmp_path: Path) -> str:
    path = tmp_path / "gates.yaml"
    path.write_text(GATES)
    return str(path)


@pytest.mark.parametrize(
    ("lines", "outcome", "code"),
    [
        (evidence(), "pass", 0),
        (evidence(ttft=0.4), "fail", 1),
        (evidence(2), "running", 3),
        ([*evidence(2), b"nonsense"], "error", 4),
    ],
)
def test_the_exit_code_says_how_it_ended(
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
    gates: str,
    *,
    lines: list[bytes],
    outcome: str,
    code: int,
) -> None:
    pipe_in(monkeypatch, lines)
    assert main(["gate", "stream", gates]) == code
    answers = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    assert len(answers) == len(lines)
    assert answers[-1]["outcome"] == outcome


@pytest.mark.parametrize(("ttft", "code"), [(0.2, 0), (0.4, 1)])
def test_it_stops_at_the_first_final_verdict_when_asked_to(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes], gates: str, ttft: float, code: int
) -> None:
    pipe_in(monkeypatch, evidence(ttft=ttft))
    assert main(["gate", "stream", gates, "--stop"]) == code
    outcomes = [json.loads(line)["outcome"] for line in capsysbinary.readouterr().out.splitlines()]
    assert len(outcomes) < LOOKS
    assert set(outcomes[:-1]) == {"running"}
    assert outcomes[-1] == ("fail" if code else "pass")


def test_the_last_word_for_people_is_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes], gates: str
) -> None:
    pipe_in(monkeypatch, evidence(ttft=0.4))
    main(["gate", "stream", gates])
    said = capsysbinary.readouterr().err.decode()
    assert said.startswith("fail after 60 batches: latency: canary TTFT p95 is ")
    assert said.count("\n") == 1


def test_evidence_that_nobody_listens_to_is_told_once(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes], gates: str
) -> None:
    pipe_in(monkeypatch, [line.replace(b'"users"', b'"proxy"') for line in evidence(3)])
    assert main(["gate", "stream", gates]) == 3
    said = capsysbinary.readouterr().err.decode().splitlines()
    assert said[0] == "no gate listens to `proxy`; name it under `sources` in a file of kind Gates"
    assert len(said) == 2


def test_a_whole_delivery_is_asked_with_a_trials_share_of_its_budget(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    assert main(["init", str(tmp_path)]) == 0
    capsysbinary.readouterr()
    pipe_in(monkeypatch, evidence(1))
    assert main(["gate", "stream", str(tmp_path / "delivery.yaml")]) == 3
    answer = json.loads(capsysbinary.readouterr().out)
    asked = {verdict["gate"]: verdict["numbers"] for verdict in answer["verdicts"]}
    assert {"latency", "errors"} <= set(asked)
    # 1 % alone would need evidence of 100:1 from a single gate; shared out it is more.
    assert asked["latency"]["evidence_worse_needed"] > 100 * len(asked)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, ": found no such file"),
        ("kind: [", ":1: found a syntax error at column 8: expected the node content"),
        (GATES.replace("latency", "latencies"), ":3: gates.latencies: found an unknown key; expected latency"),
        (GATES.replace("Gates", "Workflow"), ":2: kind: found 'Workflow'; expected 'Gates'"),
    ],
)
def test_a_wrong_file_of_gates_reads_no_evidence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str | None, problem: str
) -> None:
    path = tmp_path / "gates.yaml"
    if text is not None:
        path.write_text(text)
    assert main(["gate", "stream", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"{path}{problem}")
