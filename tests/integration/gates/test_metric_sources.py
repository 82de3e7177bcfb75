"""The real Prometheus over a real Envoy, next to the load's record file: one port, one truth."""

from __future__ import annotations

import http.client
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from threading import Lock

import numpy as np
import pytest
import yaml
from alike import long
from fakes.engines.exposition import EDGES, EngineMetrics, engine_metrics
from fakes.services.chat_servers import chat_server
from fakes.services.http import page
from fakes.services.prometheus import asked

from gates.adapters.prometheus import PrometheusSource
from gates.adapters.records import RecordSource
from gates.evidence.batch import ArmName, Batch, Buckets, PodEvidence, Times
from gates.evidence.request_record import RecordReader, RequestRecord
from gates.model import ArmKey
from rollouts.adapters.sockets import free_port
from tidegate.core.errors import OutsideError

ARM = ArmKey(region="eu-west-1", role="canary", version="7")
TARGETS = 3
"""The proxy, and an engine of each arm."""
OTHER = ArmKey(region="eu-west-1", role="stable", version="6")


@contextmanager
def running(command: list[str], ready: str, log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        host, port, path = ready.split(" ")
        deadline = time.monotonic() + 120
        while not answers(host, int(port), path):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.1)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(60)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()


def answers(host: str, port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=30)
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
    arms = {"stable_6": "/stable", "canary_7": "/"}
    routes = [{"match": {"prefix": prefix}, "route": {"cluster": name}} for name, prefix in arms.items()]
    manager = {
        "@type": f"{filters}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "users",
        "route_config": {"virtual_hosts": [{"name": "users", "domains": ["*"], "routes": routes}]},
        "http_filters": [
            {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{filters}.http.router.v3.Router"}}
        ],
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": address(upstream)}}]}]
    clusters = [
        {"name": name, "type": "STATIC", "load_assignment": {"cluster_name": name, "endpoints": endpoints}}
        for name in arms
    ]
    return {
        "admin": {"address": address(admin)},
        "static_resources": {
            "listeners": [{"address": address(listener), "filter_chains": [chain]}],
            "clusters": clusters,
        },
    }


def scrape_config(proxy: str, engines: dict[ArmKey, int] | None = None) -> dict[str, object]:
    names = {"source_labels": ["envoy_cluster_name"], "regex": "([a-z]+)_(.+)"}
    relabel = [
        {**names, "target_label": "role", "replacement": "$1"},
        {**names, "target_label": "version", "replacement": "$2"},
    ]
    job = {
        "job_name": "envoy",
        "static_configs": [{"targets": [proxy], "labels": {"region": "eu-west-1"}}],
        "metric_relabel_configs": relabel,
    }
    targets = [{"targets": [f"127.0.0.1:{port}"], "labels": arm.model_dump()} for arm, port in (engines or {}).items()]
    engine_job = {"job_name": "engine", "static_configs": targets}
    return {"global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"}, "scrape_configs": [job, engine_job]}


def ask(port: int, model: str, path: str = "") -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", f"{path}/v1/chat/completions", f'{{"model": "{model}"}}')
        with suppress(http.client.IncompleteRead):
            connection.getresponse().read()
    finally:
        connection.close()


def prometheus_command(folder: Path, config: dict[str, object], port: int) -> list[str]:
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    return [
        "prometheus",
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
        "--enable-feature=native-histograms",
    ]


def envoy_command(folder: Path, config: dict[str, object]) -> list[str]:
    (folder / "envoy.yaml").write_text(yaml.safe_dump(config))
    envoy = str(Path(sys.executable).with_name("envoy"))
    return [envoy, "-c", f"{folder}/envoy.yaml", "--use-dynamic-base-id", "-l", "error"]


@dataclass(frozen=True)
class Users:
    """Sends requests through a proxy, and notes each where an engine and where the load would."""

    listener: int
    engines: Mapping[ArmKey, EngineMetrics]
    records: Path
    rng: np.random.Generator
    scraping: Lock

    def send(self, arm: ArmKey, model: str) -> None:
        # A stream that is cut after the scrape that saw its headers is one more request: gates/evidence/scrape.py.
        with self.scraping:
            ask(self.listener, model, "/stable" if arm.role == "stable" else "")
        ttft, itl, e2e = (float(self.rng.lognormal(mean, 0.7)) for mean in (-2, -4, 0))
        status = {"fail": 500, "refuse": 400}.get(model, 200)
        if ok := model == "m":
            self.engines[arm].observe(ttft, itl, e2e)
        entry = RequestRecord(
            started=time.time() - e2e,
            status=status,
            ok=ok,
            cut=model == "cut",
            error="" if ok else "status",
            ttft_seconds=ttft,
            itl_mean_seconds=itl,
            duration_seconds=e2e,
            **arm.model_dump(),
        )
        write(self.records, entry)

    def send_many(self) -> None:
        for arm in (OTHER, ARM):
            for model, times in (("m", int(self.rng.integers(5, 15))), ("fail", 3), ("refuse", 2), ("cut", 1)):
                for _ in range(times):
                    self.send(arm, model)


def counts(batch: Batch) -> dict[ArmName, tuple[int, int, int]]:
    """Requests, errors and refusals of each arm."""
    return {pod.arm: (pod.requests, pod.errors, pod.refused) for pod in batch.arms}


def bucketed(batch: Batch, edges: Sequence[float]) -> dict[tuple[ArmName, str], list[int]]:
    """The times of each arm on these edges; counts may be of a finer grid that has them too."""
    found = {}
    for pod in batch.arms:
        for name in ("ttft", "itl", "e2e"):
            times: Times = getattr(pod, name)
            if isinstance(times, Buckets):
                cells = list(zip((*times.edges, math.inf), times.counts, strict=True))
            else:
                cells = [(seconds, 1) for seconds in times]
            cumulated = [sum(count for at, count in cells if at <= edge) for edge in (*edges, math.inf)]
            found[pod.arm, name] = [high - low for low, high in pairwise([0, *cumulated])]
    return found


@contextmanager
def observed_users(folder: Path, *, native: bool) -> Iterator[tuple[Users, PrometheusSource, str]]:
    """Users of two arms behind one proxy, and the Prometheus that watches proxy and engines, with its address."""
    listener, admin, port = free_port(), free_port(), free_port()
    scraping = Lock()

    def scraped() -> bytes:
        with scraping:
            # Not by a client that loads certificates first: a scrape has half a second.
            connection = http.client.HTTPConnection("127.0.0.1", admin, timeout=30)
            connection.request("GET", "/stats/prometheus")
            with closing(connection), connection.getresponse() as response:
                return response.read()

    with (
        page(scraped) as proxy,
        chat_server(token_seconds=0.001) as server,
        engine_metrics(native=native) as stable,
        engine_metrics(native=native) as canary,
    ):
        config = scrape_config(proxy, {OTHER: stable.server_port, ARM: canary.server_port})
        with (
            running(
                envoy_command(folder, envoy_config(listener, admin, server.server_port)),
                f"127.0.0.1 {admin} /ready",
                folder / "envoy.log",
            ),
            running(prometheus_command(folder, config, port), f"127.0.0.1 {port} /-/ready", folder / "prometheus.log"),
        ):
            rng = np.random.default_rng(1)
            users = Users(listener, {OTHER: stable, ARM: canary}, folder / "users.jsonl", rng, scraping)
            url = f"http://127.0.0.1:{port}"
            source = PrometheusSource(url, settles_within=timedelta(seconds=1))
            # Prometheus takes five seconds to find its targets.
            until_scraped_twice(url)
            yield users, source, url


def until_scraped_twice(url: str) -> None:
    """Return once each target has answered two scrapes from now on: the first may have begun before."""
    now, seen = time.time(), defaultdict[str, set[float]](set)
    deadline = time.monotonic() + 120
    while len(seen) < TARGETS or any(len(times) < 2 for times in seen.values()):
        assert time.monotonic() < deadline, seen
        time.sleep(0.05)
        # One that came too late for its scrape has not answered it.
        for sample in asked(url, "timestamp(up) and up == 1"):
            at = float(sample["value"][1])
            seen[sample["metric"]["instance"]] |= {at} if at > now else set()


@pytest.mark.slow(reason="Prometheus looks for its targets every five seconds")
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")
@pytest.mark.parametrize("native", [long(False, id="classic"), pytest.param(True, id="native")])
def test_both_sources_tell_the_same_of_the_same_requests(tmp_path: Path, native: bool) -> None:
    with observed_users(tmp_path, native=native) as (users, source, url):
        moments = [datetime.now(UTC)]
        for look in range(2):
            users.send_many()
            if look == 1:
                # Scraped once more before it goes.
                until_scraped_twice(url)
                users.engines[ARM].restart()
            until_scraped_twice(url)
            moments.append(datetime.now(UTC))
        since, until = moments[0], moments[-1]
        scraped = source.batch(OTHER, ARM, since, until)
        seen = RecordSource([users.records]).batch(OTHER, ARM, since, until)
        edges = common_powers() if native else EDGES
        # 169 edges are the grid of native histograms.
        assert {len(pod.ttft.edges) for pod in scraped.arms if isinstance(pod.ttft, Buckets)} == {
            169 if native else len(EDGES)
        }
        assert not scraped.missing and (scraped.source, seen.source) == ("proxy", "users")
        assert counts(scraped) == counts(seen)
        assert bucketed(scraped, edges) == bucketed(seen, edges)
        parts = [source.batch(OTHER, ARM, low, high) for low, high in pairwise(moments)]
        for arm, whole in counts(scraped).items():
            assert tuple(map(sum, zip(*(counts(part)[arm] for part in parts), strict=True))) == whole
        for key, whole_times in bucketed(scraped, edges).items():
            summed = [sum(column) for column in zip(*(bucketed(part, edges)[key] for part in parts), strict=True)]
            assert summed == whole_times


def common_powers() -> tuple[float, ...]:
    """Edges of the grid of native histograms."""
    return tuple(2 ** (index / 8) for index in range(-80, 40))


def test_a_prometheus_that_is_not_there_is_an_error_and_no_verdict() -> None:
    source = PrometheusSource("http://127.0.0.1:9", timeout_seconds=1)
    now = datetime.now(UTC)
    with pytest.raises(OutsideError, match="does not answer"):
        source.batch(OTHER, ARM, now, now)


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
    whole = PodEvidence(arm=ArmName.CANARY, requests=3, errors=1, refused=1, ttft=(0.2,), e2e=(1.0,))
    assert source.batch(OTHER, ARM, since, until).arms == (whole,)
    write(path, record(103))
    assert counts(source.batch(OTHER, ARM, since, until)) == {ArmName.CANARY: (4, 1, 1)}


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
