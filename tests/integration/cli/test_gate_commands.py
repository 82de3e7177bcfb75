"""The gate commands as processes and next to real servers: pipes that break, Prometheus, evidence kept in MLflow."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
import yaml
from fakes.engines.exposition import EngineMetrics, engine_metrics
from fakes.metrics.samples import Serving, traffic
from fakes.terminal import Tidegate

from gates.analyses.latency import LatencyGate
from gates.sequential_test import AnalysisPlan, SequentialTest
from gates.transcript import BatchLine, TermsLine, VerdictsLine, written
from registry.adapters.mlflow_deliveries import MlflowDeliveries
from registry.adapters.mlflow_store import embedded_uri
from registry.model import ModelVersion
from rollouts.adapters.sockets import free_port

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


@contextmanager
def prometheus(folder: Path, arms: dict[str, EngineMetrics]) -> Iterator[str]:
    """One that scrapes an engine of each role every second."""
    port = free_port()
    targets = [
        {
            "targets": [f"127.0.0.1:{engine.server_port}"],
            "labels": {"region": "eu-west-1", "role": role, "version": {"stable": "6", "canary": "7"}[role]},
        }
        for role, engine in arms.items()
    ]
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [{"job_name": "engine", "static_configs": targets}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    flags = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            ["prometheus", *flags, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(90)


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")
def test_what_prometheus_scraped_is_judged(tidegate: Tidegate, gates: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    with (
        engine_metrics() as stable,
        engine_metrics() as canary,
        prometheus(tmp_path, {"stable": stable, "canary": canary}) as url,
    ):
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline:
            for engine, slower, count in ((stable, 1.0, 40), (canary, 3.0, 20)):
                for ttft in rng.lognormal(-2, 0.5, count) * slower:
                    engine.observe(float(ttft), 0.01, 1.0)
            time.sleep(0.5)
        # What a scrape found is there once the scrape timeout, ten seconds by default, is over.
        time.sleep(11)
        arms = ["--region", "eu-west-1", "--stable", "6", "--canary", "7", "--since", "15s"]
        said = tidegate("gate", "check", str(gates), "--prometheus", url, *arms, "--output", "json")
        unknown = tidegate("gate", "check", str(gates), "--prometheus", url, *arms[:-4], "--canary", "8")
    assert (said.code, said.err) == (1, "")
    assert (said.json["outcome"], said.json["batches"]) == ("fail", 5)
    assert said.json["verdicts"][0]["numbers"]["canary_requests"] > 40
    assert unknown.code == 3
    assert "no TTFT of the canary: Prometheus has no" in unknown.out
