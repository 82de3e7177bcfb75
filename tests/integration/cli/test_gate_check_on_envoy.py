"""`gate check --prometheus` on what a real Envoy counts by itself, its clusters named as Envoy Gateway names them."""

from __future__ import annotations

import http.client
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from alike import long
from e2e.machine import until
from fakes.services.chat_servers import chat_server
from fakes.services.prometheus import asked, prometheus
from fakes.services.sockets import running
from fakes.terminal import Tidegate

from rollouts.adapters.sockets import free_port

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Prometheus")

RULE = "httproute/serving/support-llm/rule/0"
STABLE, CANARY = f"{RULE}/backend/0", f"{RULE}/backend/1"
GATES = f"""
apiVersion: tidegate/v1
kind: Gates
metadata: {{name: support-llm}}
gates:
  budget: {{poll_interval: 3s}}
  errors: {{max_increase: 20pp}}
  latency: {{metric: e2e, quantile: 0.5, max_increase: 200%}}
metrics:
  sources:
    - preset: envoy-gateway
      arms: {{stable: {STABLE}, canary: {CANARY}}}
"""


def envoy_config(listener: int, admin: int, upstreams: dict[str, int]) -> dict[str, object]:
    """A route to two weighted clusters; a header chooses, so that the test knows how many each got."""

    def address(port: int) -> dict[str, object]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": port}}

    filters = "type.googleapis.com/envoy.extensions.filters"
    weighted = {"clusters": [{"name": name, "weight": weight} for name, weight in ((STABLE, 100), (CANARY, 0))]}
    chosen = {"name": "x-arm", "string_match": {"exact": "canary"}}
    routes = [
        {"match": {"prefix": "/", "headers": [chosen]}, "route": {"cluster": CANARY}},
        {"match": {"prefix": "/"}, "route": {"weighted_clusters": weighted}},
    ]
    manager = {
        "@type": f"{filters}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "http-10080",
        "route_config": {"virtual_hosts": [{"name": "llm", "domains": ["*"], "routes": routes}]},
        "http_filters": [
            {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{filters}.http.router.v3.Router"}}
        ],
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    clusters = [
        {
            "name": name,
            "type": "STATIC",
            "load_assignment": {
                "cluster_name": name,
                "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(port)}}]}],
            },
        }
        for name, port in upstreams.items()
    ]
    listeners = [{"address": address(listener), "filter_chains": [chain]}]
    return {
        "admin": {"address": address(admin)},
        "stats_flush_interval": "1s",
        "static_resources": {"listeners": listeners, "clusters": clusters},
    }


def ask(port: int, model: str, *, canary: bool) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        headers = {"x-arm": "canary"} if canary else {}
        connection.request("POST", "/v1/chat/completions", f'{{"model": "{model}"}}', headers)
        with suppress(http.client.IncompleteRead):
            connection.getresponse().read()
    finally:
        connection.close()


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[tuple[int, str]]:
    """The port of an Envoy in front of two engines, and the Prometheus that scrapes it as it is."""
    with gateway_in(tmp_path) as found:
        yield found


@contextmanager
def gateway_in(home: Path) -> Iterator[tuple[int, str]]:
    listener, admin = free_port(), free_port()
    with chat_server(token_seconds=0.001) as stable, chat_server(token_seconds=0.001) as canary:
        config = envoy_config(listener, admin, {STABLE: stable.server_port, CANARY: canary.server_port})
        (home / "envoy.yaml").write_text(yaml.safe_dump(config))
        envoy = [str(Path(sys.executable).with_name("envoy")), "-c", str(home / "envoy.yaml"), "--use-dynamic-base-id"]
        job = {
            "job_name": "envoy-gateway",
            "metrics_path": "/stats/prometheus",
            "static_configs": [{"targets": [f"127.0.0.1:{admin}"]}],
        }
        scrape = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": [job]}
        (home / "prometheus").mkdir()
        with (
            running([*envoy, "-l", "error"], ready=f"http://127.0.0.1:{admin}/ready", log=home / "envoy.log"),
            prometheus(home / "prometheus", scrape) as url,
        ):
            # Seen without requests: Envoy tells no start of its process, and what is counted from here on has an age.
            until("it scrapes", lambda: asked(url, "count_over_time(up[20s]) >= 2") or None)
            yield listener, url


def serve(port: int, url: str, *, requests: int = 100, bad: int, ago: int = 3) -> datetime:
    """So many requests of each arm, of which so many of the canary's fail or are cut; when they began.

    Returns once Prometheus has had all of them for so many seconds; Envoy flushes its histograms a second later.
    """
    began = datetime.now(UTC)
    for number in range(requests):
        ask(port, "m", canary=False)
        ask(port, ("fail", "cut")[number % 2] if number < bad else "m", canary=True)
    all_of_them = f'envoy_cluster_upstream_rq_total{{envoy_cluster_name=~".*/backend/.*"}} offset {ago}s >= {requests}'
    until("it has them all", lambda: len(asked(url, all_of_them)) == 2)
    return began


@pytest.mark.slow(reason="what Prometheus has is settled ten seconds later")
@pytest.mark.parametrize(("bad", "code", "outcome"), [long(0, 0, "pass"), (60, 1, "fail")])
def test_a_canary_is_judged_by_a_gateway_that_knows_nothing_of_us(
    gateway: tuple[int, str], tmp_path: Path, tidegate: Tidegate, *, bad: int, code: int, outcome: str
) -> None:
    port, url = gateway
    gates = tmp_path / "gates.yaml"
    gates.write_text(GATES)
    # The command takes as settled what is ten seconds old.
    serve(port, url, requests=200, bad=bad, ago=10)
    arms = ("--stable", "6", "--canary", "7", "--since", "90s")
    said = tidegate("gate", "check", str(gates), "--prometheus", url, *arms, "--output", "json")
    assert (said.code, said.json["outcome"]) == (code, outcome), said


def test_what_a_gateway_cannot_tell_is_refused_with_its_place(tmp_path: Path, tidegate: Tidegate) -> None:
    gates = tmp_path / "gates.yaml"
    gates.write_text(GATES.replace("metric: e2e", "metric: ttft"))
    said = tidegate("gate", "check", str(gates), "--prometheus", "http://127.0.0.1:9", "--stable", "6", "--canary", "7")
    assert said.code == 2
    assert "gates.yaml:8: gates.latency.metric: found ttft, which no source of `metrics.sources` has" in said.err
    assert "expected a source with preset vllm, or its metric by hand at metrics.sources[0].ttft" in said.err
    gates.write_text(GATES.replace("metrics:", "  agreement: {}\nmetrics:"))
    said = tidegate("gate", "check", str(gates), "--prometheus", "http://127.0.0.1:9", "--stable", "6", "--canary", "7")
    assert said.code == 2
    assert "gates.yaml:9: gates.agreement: found a gate on pairs of answers, which no metric holds" in said.err
