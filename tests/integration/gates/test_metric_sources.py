"""The real Prometheus over a real Envoy, next to the load's record file: one port, one truth."""

from __future__ import annotations

import http.client
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from threading import Lock

import pytest
import yaml
from fakes.services.chat_servers import chat_server
from fakes.services.http import page
from fakes.services.prometheus import asked, prometheus
from fakes.services.sockets import running
from fakes.waiting import PATIENCE_SECONDS

from gates.adapters.prometheus import PrometheusSource
from gates.adapters.records import RecordSource
from gates.evidence.batch import ArmName, Batch
from gates.evidence.request_record import RequestRecord
from gates.model import ArmKey
from rollouts.adapters.sockets import free_port
from tidegate.core.errors import OutsideError

ARM = ArmKey(region="eu-west-1", role="canary", version="7")
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


def scrape_config(proxy: str) -> dict[str, object]:
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
    return {"global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"}, "scrape_configs": [job]}


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


@dataclass(frozen=True)
class Users:
    """Sends requests through a proxy, and notes each where the load would."""

    listener: int
    records: Path
    scraping: Lock

    def send(self, arm: ArmKey, model: str) -> None:
        # A stream that is cut after the scrape that saw its headers is one more request: gates/evidence/scrape.py.
        with self.scraping:
            ask(self.listener, model, "/stable" if arm.role == "stable" else "")
        status, ok = {"fail": 500, "refuse": 400}.get(model, 200), model == "m"
        entry = RequestRecord(
            started=time.time(),
            status=status,
            ok=ok,
            cut=model == "cut",
            error="" if ok else "status",
            duration_seconds=0,
            **arm.model_dump(),
        )
        with self.records.open("a") as file:
            file.write(entry.model_dump_json() + "\n")

    def send_many(self) -> None:
        for arm in (OTHER, ARM):
            for model, times in (("m", 9), ("fail", 3), ("refuse", 2), ("cut", 1)):
                for _ in range(times):
                    self.send(arm, model)


def counts(batch: Batch) -> dict[ArmName, tuple[int, int, int]]:
    """Requests, errors and refusals of each arm."""
    return {pod.arm: (pod.requests, pod.errors, pod.refused) for pod in batch.arms}


@contextmanager
def observed_users(folder: Path) -> Iterator[tuple[Users, PrometheusSource, str]]:
    """Users of two arms behind one proxy, and the Prometheus that watches it, with its address."""
    listener, admin, scraping = free_port(), free_port(), Lock()

    def scraped() -> bytes:
        with scraping:
            # Not by a client that loads certificates first: a scrape has half a second.
            connection = http.client.HTTPConnection("127.0.0.1", admin, timeout=30)
            connection.request("GET", "/stats/prometheus")
            with closing(connection), connection.getresponse() as response:
                return response.read()

    with page(scraped) as proxy, chat_server(token_seconds=0.001) as server:
        config = scrape_config(proxy)
        envoy = envoy_command(folder, envoy_config(listener, admin, server.server_port))
        (folder / "prometheus").mkdir()
        with (
            running(envoy, ready=f"http://127.0.0.1:{admin}/ready", log=folder / "envoy.log"),
            prometheus(folder / "prometheus", config) as url,
        ):
            users = Users(listener, folder / "users.jsonl", scraping)
            source = PrometheusSource(url, settles_within=timedelta(seconds=1))
            # Prometheus takes five seconds to find its targets.
            until_scraped_twice(url)
            yield users, source, url


def until_scraped_twice(url: str) -> None:
    """Return once the proxy has answered two scrapes from now on: the first may have begun before."""
    now, seen = time.time(), set[float]()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(seen) < 2:
        assert time.monotonic() < deadline, seen
        time.sleep(0.05)
        # One that came too late for its scrape has not answered it.
        for sample in asked(url, "timestamp(up) and up == 1"):
            at = float(sample["value"][1])
            seen |= {at} if at > now else set()


@pytest.mark.slow(reason="Prometheus looks for its targets every five seconds")
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")
def test_both_sources_tell_the_same_of_the_same_requests(tmp_path: Path) -> None:
    with observed_users(tmp_path) as (users, source, url):
        moments = [datetime.now(UTC)]
        for _ in range(2):
            users.send_many()
            until_scraped_twice(url)
            moments.append(datetime.now(UTC))
        since, until = moments[0], moments[-1]
        scraped = source.batch(OTHER, ARM, since, until)
        seen = RecordSource([users.records]).batch(OTHER, ARM, since, until)
        assert "requests" not in scraped.missing and (scraped.source, seen.source) == ("proxy", "users")
        assert counts(scraped) == counts(seen)
        parts = [source.batch(OTHER, ARM, low, high) for low, high in pairwise(moments)]
        for arm, whole in counts(scraped).items():
            assert tuple(map(sum, zip(*(counts(part)[arm] for part in parts), strict=True))) == whole


def test_a_prometheus_that_is_not_there_is_an_error_and_no_verdict() -> None:
    source = PrometheusSource("http://127.0.0.1:9", timeout_seconds=1)
    now = datetime.now(UTC)
    with pytest.raises(OutsideError, match="does not answer"):
        source.batch(OTHER, ARM, now, now)
