"""The real Prometheus over a real Envoy, beside the load's record file: one port, one truth."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from fakes.chat_server import chat_server

from gates.adapters.prometheus import PrometheusSource
from gates.adapters.records import RecordReader, RecordSource
from gates.evaluate import measure
from gates.model import ArmKey, Counts, NoData, Outcome
from gates.records import RequestRecord
from gates.spec import ErrorsGate, LatencyMetric
from tidegate.core.errors import OutsideError

ARM = ArmKey(region="eu-west-1", role="canary", version="7")
OTHER = ArmKey(region="eu-west-1", role="stable", version="6")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: list[str], ready: str, log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        host, port, path = ready.split(" ")
        deadline = time.monotonic() + 30
        while not answers(host, int(port), path):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.1)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(15)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()


def answers(host: str, port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=1)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def envoy_config(listener: int, admin: int, upstream: int) -> dict[str, object]:
    def address(port: int) -> dict[str, object]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": port}}

    filters = "type.googleapis.com/envoy.extensions.filters"
    route = {"match": {"prefix": "/"}, "route": {"cluster": "canary_7"}}
    manager = {
        "@type": f"{filters}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "users",
        "route_config": {"virtual_hosts": [{"name": "users", "domains": ["*"], "routes": [route]}]},
        "http_filters": [
            {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{filters}.http.router.v3.Router"}}
        ],
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": address(upstream)}}]}]
    return {
        "admin": {"address": address(admin)},
        "static_resources": {
            "listeners": [{"address": address(listener), "filter_chains": [chain]}],
            "clusters": [
                {
                    "name": "canary_7",
                    "type": "STATIC",
                    "load_assignment": {"cluster_name": "canary_7", "endpoints": endpoints},
                }
            ],
        },
    }


def scrape_config(admin: int) -> dict[str, object]:
    names = {"source_labels": ["envoy_cluster_name"], "regex": "([a-z]+)_(.+)"}
    relabel = [
        {**names, "target_label": "role", "replacement": "$1"},
        {**names, "target_label": "version", "replacement": "$2"},
    ]
    job = {
        "job_name": "envoy",
        "metrics_path": "/stats/prometheus",
        "static_configs": [{"targets": [f"127.0.0.1:{admin}"], "labels": {"region": "eu-west-1"}}],
        "metric_relabel_configs": relabel,
    }
    return {"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}


def ask(port: int, model: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("POST", "/v1/chat/completions", f'{{"model": "{model}"}}')
        with suppress(http.client.IncompleteRead):
            connection.getresponse().read()
    finally:
        connection.close()


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")
def test_requests_are_counted_as_they_were_sent(tmp_path: Path) -> None:
    listener, admin, port = free_port(), free_port(), free_port()
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(scrape_config(admin)))
    prometheus = [
        "prometheus",
        f"--config.file={tmp_path}/prometheus.yml",
        f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    envoy_path = str(Path(sys.executable).with_name("envoy"))
    with chat_server(token_seconds=0.001) as server:
        config = envoy_config(listener, admin, server.server_port)
        (tmp_path / "envoy.yaml").write_text(yaml.safe_dump(config))
        envoy = [envoy_path, "-c", f"{tmp_path}/envoy.yaml", "--use-dynamic-base-id", "-l", "error"]
        with (
            running(envoy, f"127.0.0.1 {admin} /ready", tmp_path / "envoy.log"),
            running(prometheus, f"127.0.0.1 {port} /-/ready", tmp_path / "prometheus.log"),
        ):
            source = PrometheusSource(f"http://127.0.0.1:{port}")
            since = datetime.now(UTC)
            time.sleep(2.5)
            for model, times in (("m", 6), ("fail", 3), ("refuse", 2), ("cut", 2)):
                for _ in range(times):
                    ask(listener, model)
            expected = Counts(total=13, failed=5, refused=2)
            deadline = time.monotonic() + 15
            while source.requests(ARM, since, datetime.now(UTC)) != expected and time.monotonic() < deadline:
                time.sleep(0.5)
            assert source.requests(ARM, since, datetime.now(UTC)) == expected
            time.sleep(1.5)
            quiet = source.requests(ARM, datetime.now(UTC), datetime.now(UTC))
            assert quiet == Counts(total=0, failed=0, refused=0)
            assert isinstance(source.requests(OTHER, since, datetime.now(UTC)), NoData)
            assert isinstance(source.latencies(LatencyMetric.TTFT, ARM, since, datetime.now(UTC)), NoData)


def test_a_prometheus_that_is_not_there_is_an_error_and_no_verdict() -> None:
    source = PrometheusSource("http://127.0.0.1:9", timeout_seconds=1)
    now = datetime.now(UTC)
    with pytest.raises(OutsideError, match="does not answer"):
        source.requests(ARM, now, now)
    verdict = measure(ErrorsGate(), source, stable=OTHER, canary=ARM, since=now, until=now, deadline_passed=False)
    assert verdict.outcome is Outcome.ERROR


def record(started: float, *, ok: bool = True, status: int = 200) -> RequestRecord:
    return RequestRecord(
        started=started,
        region="eu-west-1",
        role="canary",
        version="7",
        status=status,
        ok=ok,
        ttft_seconds=0.2 if ok else None,
        duration_seconds=1,
    )


def write(path: Path, *records: RequestRecord) -> None:
    with path.open("a") as file:
        file.writelines(entry.model_dump_json() + "\n" for entry in records)


def test_records_are_counted_in_the_window_in_which_they_ended(tmp_path: Path) -> None:
    path = tmp_path / "users.jsonl"
    write(path, record(98), record(100), record(101, ok=False, status=500), record(102, ok=False, status=400))
    source = RecordSource([path])
    since, until = datetime.fromtimestamp(100, UTC), datetime.fromtimestamp(110, UTC)
    assert source.requests(ARM, since, until) == Counts(total=3, failed=1, refused=1)
    latencies = source.latencies(LatencyMetric.TTFT, ARM, since, until)
    assert not isinstance(latencies, NoData) and latencies.count == 1
    assert isinstance(source.latencies(LatencyMetric.ITL, ARM, since, until), NoData)
    assert isinstance(source.requests(OTHER, since, until), NoData)
    write(path, record(103))
    assert source.requests(ARM, since, until) == Counts(total=4, failed=1, refused=1)


def test_a_half_written_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "users.jsonl"
    line = record(1).model_dump_json()
    path.write_text(line + "\n" + line[:20])
    reader = RecordReader(path)
    assert len(reader.read_new()) == 1
    with path.open("a") as file:
        file.write(line[20:] + "\n")
    assert len(reader.read_new()) == 1
    assert reader.read_new() == []


def test_a_missing_or_foreign_record_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OutsideError, match="cannot read"):
        RecordReader(tmp_path / "none.jsonl").read_new()
    (tmp_path / "bad.jsonl").write_text("hello\n")
    with pytest.raises(OutsideError, match="no record"):
        RecordReader(tmp_path / "bad.jsonl").read_new()
