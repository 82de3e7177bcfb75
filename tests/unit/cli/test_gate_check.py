"""`tidegate gate check`: the exit code is the worst gate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes.metrics.samples import Serving, traffic

from tidegate.cli import main

GATES = "apiVersion: tidegate/v1\nkind: Gates\ngates: {latency: {}, errors: {max_increase: 5pp}}\n"


@pytest.mark.parametrize(
    ("looks", "ttft", "outcome", "code"),
    [(60, 0.2, "pass", 0), (60, 0.4, "fail", 1), (2, 0.2, "inconclusive", 3), (0, 0.2, "inconclusive", 3)],
)
def test_the_exit_code_is_the_worst_gate(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, *, looks: int, ttft: float, outcome: str, code: int
) -> None:
    stable, canary = Serving(per_second=20, failing=0.002), Serving(per_second=5, failing=0.002, ttft=ttft)
    (tmp_path / "gates.yaml").write_text(GATES)
    lines = [batch.model_dump_json() for batch in traffic(canary, stable, looks=looks)]
    (tmp_path / "evidence.jsonl").write_text("\n".join(lines))
    named = [str(tmp_path / "gates.yaml"), str(tmp_path / "evidence.jsonl")]
    assert main(["gate", "check", *named, "--output", "json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert (document["outcome"], document["batches"]) == (outcome, looks)
    assert [verdict["gate"] for verdict in document["verdicts"]] == ["latency", "errors"]
