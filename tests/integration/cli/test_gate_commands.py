"""Evidence that is kept in MLflow."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.metrics.samples import Serving, traffic
from fakes.terminal import Tidegate

from gates.analyses.latency import LatencyGate
from gates.sequential_test import AnalysisPlan, SequentialTest
from gates.transcript import BatchLine, TermsLine, VerdictsLine, written
from registry.adapters.mlflow_deliveries import MlflowDeliveries
from registry.adapters.mlflow_store import embedded_uri
from registry.model import ModelVersion

pytestmark = pytest.mark.long


def recorded(path: Path) -> Path:
    trial = SequentialTest(AnalysisPlan(latency=LatencyGate()))
    lines = [written(TermsLine(trial=path.stem, terms=trial.plan))]
    for batch in traffic(Serving(per_second=5), Serving(per_second=20), looks=10):
        trial.take(batch)
        lines += [written(BatchLine(step=path.stem, batch=batch))]
        lines += [written(VerdictsLine(step=path.stem, verdicts=trial.verdicts()))]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_delivery_whose_folder_is_gone_is_replayed_from_mlflow(
    tidegate: Tidegate, state: Path, tmp_path: Path, name: str
) -> None:
    version = ModelVersion(name=name, version="2", digest="d" * 64, files={}, size_bytes=0)
    ledger = MlflowDeliveries(embedded_uri(state)).open_delivery(version, None, spec_digest="s")
    none_yet = tidegate("gate", "replay", ledger.delivery)
    assert (none_yet.code, none_yet.out) == (2, "")
    assert none_yet.err.startswith(f"tidegate: {ledger.delivery} has no recorded trial")
    for trial in ("canary@eu-west-1", "bake@1.eu-west-1"):
        ledger.attach(recorded(tmp_path / f"{trial}.jsonl"), folder="evidence")
    ledger.close("delivered", "all gates passed")
    both = tidegate("gate", "replay", ledger.delivery)
    assert both.code == 0
    assert both.out.count("same verdicts, bit for bit: 10 batches, 10 verdicts\n") == 2
    one = tidegate("gate", "replay", ledger.delivery, "--stage", "bake@1/eu-west-1", "--output", "json")
    assert [trial["trial"] for trial in one.json] == ["bake@1.eu-west-1"]


def test_a_delivery_that_nobody_made_is_a_usage_error(tidegate: Tidegate) -> None:
    said = tidegate("gate", "replay", "0" * 32)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"tidegate: {'0' * 32} has no recorded trial; ")
