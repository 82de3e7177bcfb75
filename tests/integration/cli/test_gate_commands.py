"""The gate commands as processes, whose pipes break, and evidence that is kept in MLflow."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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

TIDEGATE = Path(sys.executable).with_name("tidegate")
GATES = "apiVersion: tidegate/v1\nkind: Gates\ngates: {budget: {poll_interval: 3s}, latency: {}}\n"


@pytest.fixture
def gates(tmp_path: Path) -> Path:
    path = tmp_path / "gates.yaml"
    path.write_text(GATES)
    return path


def evidence(looks: int) -> list[bytes]:
    return [
        batch.model_dump_json().encode() + b"\n"
        for batch in traffic(Serving(per_second=5), Serving(per_second=20), looks=looks)
    ]


@contextmanager
def streaming(gates: Path) -> Iterator[subprocess.Popen[bytes]]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # A shell that runs the tests in the background makes its children ignore Ctrl-C; a terminal does not.
    command = ["env", "--default-signal=INT", TIDEGATE, "gate", "stream", gates]
    with subprocess.Popen(command, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def test_each_answer_comes_before_the_next_line_is_sent(gates: Path) -> None:
    with streaming(gates) as process:
        assert process.stdin and process.stdout and process.stderr
        for number, line in enumerate([*evidence(3), b"nonsense\n"], start=1):
            process.stdin.write(line)
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            assert answer["batch"] == min(number, 3)
        assert answer["problems"][0]["line"] == 4
        process.stdin.close()
        assert process.wait(90) == 4
        assert process.stderr.read() == b"error after 3 batches: line 4 could not be read\n"


def test_a_reader_that_goes_away_ends_the_stream_quietly(gates: Path) -> None:
    with streaming(gates) as process:
        assert process.stdin and process.stdout and process.stderr
        lines = iter(evidence(30))
        process.stdin.write(next(lines))
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()
        with pytest.raises(BrokenPipeError):
            for line in lines:
                process.stdin.write(line)
                process.stdin.flush()
                time.sleep(0.05)
        assert process.wait(90) == 4
        assert process.stderr.read() == b""
        with suppress(BrokenPipeError):
            process.stdin.close()


def test_ctrl_c_ends_the_stream_without_a_traceback(gates: Path) -> None:
    with streaming(gates) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write(evidence(1)[0])
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(90) == 130
        assert process.stderr.read() == b"tidegate: stopped\n"


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
