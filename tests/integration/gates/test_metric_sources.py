"""The real Prometheus over a real Envoy, next to the load's record file: one port, one truth."""

from __future__ import annotations

import http.client
import math
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from threading import Lock

import numpy as np
import pytest
import yaml
from fakes.services.chat_servers import chat_server
from fakes.services.http import page
from fakes.services.prometheus import asked, prometheus
from fakes.services.sockets import running
from fakes.waiting import PATIENCE_SECONDS
from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest

from gates.adapters.prometheus import PrometheusSource
from gates.adapters.records import RecordSource
from gates.evidence.batch import ArmName, Batch, Buckets, LatencyMetric, Times
from gates.evidence.names import PROCESS_START, of_this_machine
from gates.evidence.request_record import RequestRecord
from gates.model import ArmKey
from rollouts.adapters.sockets import free_port
from tidegate.core.errors import OutsideError

ARM = ArmKey(region="eu-west-1", role="canary", version="7")
EDGES = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
TARGETS = 3
"""The proxy, and an engine of each arm."""
OTHER = ArmKey(region="eu-west-1", role="stable", version="6")


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


def scrape_config(proxy: str, engines: Mapping[ArmKey, str]) -> dict[str, object]:
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
    targets = [{"targets": [address], "labels": arm.model_dump()} for arm, address in engines.items()]
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


def envoy_command(folder: Path, config: dict[str, object]) -> list[str]:
    (folder / "envoy.yaml").write_text(yaml.safe_dump(config))
    envoy = str(Path(sys.executable).with_name("envoy"))
    return [envoy, "-c", f"{folder}/envoy.yaml", "--use-dynamic-base-id", "-l", "error"]


class EngineMetrics:
    """What an engine observed."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """A new process at the old address."""
        self._registry = CollectorRegistry()
        Gauge(PROCESS_START, "-", registry=self._registry).set_to_current_time()
        named = of_this_machine().times
        self._times = [
            Histogram(named[each][0].metric, "-", registry=self._registry, buckets=EDGES) for each in LatencyMetric
        ]

    def observe(self, *seconds: float) -> None:
        """The times of one answer, metric by metric."""
        for times, taken in zip(self._times, seconds, strict=True):
            times.observe(taken)

    def text(self) -> bytes:
        return generate_latest(self._registry)


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
        with self.records.open("a") as file:
            file.write(entry.model_dump_json() + "\n")

    def send_many(self) -> None:
        for arm in (OTHER, ARM):
            for model, times in (("m", int(self.rng.integers(5, 15))), ("fail", 3), ("refuse", 2), ("cut", 1)):
                for _ in range(times):
                    self.send(arm, model)


def counts(batch: Batch) -> dict[ArmName, tuple[int, int, int]]:
    """Requests, errors and refusals of each arm."""
    return {pod.arm: (pod.requests, pod.errors, pod.refused) for pod in batch.arms}


def bucketed(batch: Batch) -> dict[tuple[ArmName, str], list[int]]:
    """The times of each arm on the engines' edges."""
    found = {}
    for pod in batch.arms:
        for name in ("ttft", "itl", "e2e"):
            times: Times = getattr(pod, name)
            if isinstance(times, Buckets):
                cells = list(zip((*times.edges, math.inf), times.counts, strict=True))
            else:
                cells = [(seconds, 1) for seconds in times]
            cumulated = [sum(count for at, count in cells if at <= edge) for edge in (*EDGES, math.inf)]
            found[pod.arm, name] = [high - low for low, high in pairwise([0, *cumulated])]
    return found


@contextmanager
def observed_users(folder: Path) -> Iterator[tuple[Users, PrometheusSource, str]]:
    """Users of two arms behind one proxy, and the Prometheus that watches proxy and engines, with its address."""
    listener, admin = free_port(), free_port()
    scraping, stable, canary = Lock(), EngineMetrics(), EngineMetrics()

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
        page(stable.text) as of_stable,
        page(canary.text) as of_canary,
    ):
        config = scrape_config(proxy, {OTHER: of_stable, ARM: of_canary})
        envoy = envoy_command(folder, envoy_config(listener, admin, server.server_port))
        (folder / "prometheus").mkdir()
        with (
            running(envoy, ready=f"http://127.0.0.1:{admin}/ready", log=folder / "envoy.log"),
            prometheus(folder / "prometheus", config) as url,
        ):
            rng = np.random.default_rng(1)
            users = Users(listener, {OTHER: stable, ARM: canary}, folder / "users.jsonl", rng, scraping)
            source = PrometheusSource(url, settles_within=timedelta(seconds=1))
            # Prometheus takes five seconds to find its targets.
            until_scraped_twice(url)
            yield users, source, url


def until_scraped_twice(url: str) -> None:
    """Return once each target has answered two scrapes from now on: the first may have begun before."""
    now, seen = time.time(), defaultdict[str, set[float]](set)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(seen) < TARGETS or any(len(times) < 2 for times in seen.values()):
        assert time.monotonic() < deadline, seen
        time.sleep(0.05)
        # One that came too late for its scrape has not answered it.
        for sample in asked(url, "timestamp(up) and up == 1"):
            at = float(sample["value"][1])
            seen[sample["metric"]["instance"]] |= {at} if at > now else set()


@pytest.mark.slow(reason="Prometheus looks for its targets every five seconds")
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")
def test_both_sources_tell_the_same_of_the_same_requests(tmp_path: Path) -> None:
    with observed_users(tmp_path) as (users, source, url):
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
        assert not scraped.missing and (scraped.source, seen.source) == ("proxy", "users")
        assert counts(scraped) == counts(seen)
        assert bucketed(scraped) == bucketed(seen)
        parts = [source.batch(OTHER, ARM, low, high) for low, high in pairwise(moments)]
        for arm, whole in counts(scraped).items():
            assert tuple(map(sum, zip(*(counts(part)[arm] for part in parts), strict=True))) == whole
        for key, whole_times in bucketed(scraped).items():
            summed = [sum(column) for column in zip(*(bucketed(part)[key] for part in parts), strict=True)]
            assert summed == whole_times


def test_a_prometheus_that_is_not_there_is_an_error_and_no_verdict() -> None:
    source = PrometheusSource("http://127.0.0.1:9", timeout_seconds=1)
    now = datetime.now(UTC)
    with pytest.raises(OutsideError, match="does not answer"):
        source.batch(OTHER, ARM, now, now)
