"""The exported pod monitors' relabelling, done by a real Prometheus to what an engine and a GPU exporter serve."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.engines.exposition import exporter
from fakes.services.http import page
from fakes.services.prometheus import asked, prometheus
from fakes.waiting import until
from prometheus_client import CollectorRegistry, GCCollector, generate_latest
from pydantic.alias_generators import to_snake

from slo.kubernetes.pod_monitor import as_label
from slo.metrics import GPU_UTILISATION, OF_STARTS, VLLM
from tidegate.core.names import DELIVERY, POD_TEMPLATE_HASH, REGION, ROLE, VERSION

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Prometheus")

MONITORS = Path(__file__).parents[3] / "examples/slo/exported/pod-monitors.yaml"
CANARY = {DELIVERY: "support-llm", REGION: "eu-west-1", VERSION: "7", ROLE: "canary", POD_TEMPLATE_HASH: "6f7"}
PREVIOUS = {key: value for key, value in CANARY.items() if key != ROLE}
"""A pod that Argo Rollouts counts to neither stable nor canary."""
OTHER = CANARY | {DELIVERY: "another-llm"}


@contextmanager
def served(registry: CollectorRegistry) -> Iterator[str]:
    """In the plain format: asked for another, the client for Python changes the colons in vLLM's names."""
    body = generate_latest(registry)
    with page(lambda: body) as address:
        yield address


def job(monitor: Mapping[str, Any], targets: Sequence[tuple[str, Mapping[str, str]]]) -> dict[str, object]:
    """What the Prometheus operator makes of a monitor, once it has found these pods."""
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]

    def rules(key: str) -> list[dict[str, object]]:
        return [{to_snake(name): value for name, value in rule.items()} for rule in endpoint.get(key, [])]

    return {
        "job_name": monitor["metadata"]["name"],
        "metrics_path": endpoint["path"],
        "scrape_interval": "1s",
        "static_configs": [
            {
                "targets": [address],
                "labels": {f"__meta_kubernetes_pod_label_{as_label(key)}": value for key, value in pod.items()},
            }
            for address, pod in targets
        ],
        "relabel_configs": rules("relabelings"),
        "metric_relabel_configs": rules("metricRelabelings"),
    }


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    engines, gpus = yaml.safe_load_all(MONITORS.read_text())
    engine = exporter((*VLLM, *OF_STARTS))
    GCCollector(registry=engine)
    with ExitStack() as stack:
        canary, previous = (stack.enter_context(served(engine)) for _ in range(2))
        cards = [
            stack.enter_context(
                served(exporter([GPU_UTILISATION], {as_label(key): value for key, value in pod.items()}))
            )
            for pod in (CANARY, OTHER)
        ]
        config = {
            "scrape_configs": [
                job(engines, [(canary, CANARY), (previous, PREVIOUS)]),
                job(gpus, [(address, {}) for address in cards]),
            ]
        }
        address = stack.enter_context(prometheus(tmp_path_factory.mktemp("prometheus"), config))
        wait_for(address, "count(vllm:num_requests_running) == 2 and on () count(DCGM_FI_DEV_GPU_UTIL) == 1")
        yield address


def wait_for(url: str, query: str) -> None:
    until(f"{query} has a value", lambda: bool(asked(url, query)))


def labels(url: str, query: str) -> list[dict[str, str]]:
    """Without those that Prometheus sets of itself; of a series that is stale too.

    On a busy machine a scrape may miss its second, and all series of its target are stale until the next one.
    """
    found = [dict(sample["metric"]) for sample in asked(url, f"last_over_time({query}[5m])")]
    return [{key: each[key] for key in sorted(each) if key not in {"__name__", "job", "instance"}} for each in found]


@pytest.mark.slow(reason="Prometheus scrapes for some seconds")
def test_an_engine_has_the_labels_of_its_pod(url: str) -> None:
    arm = {"pod_template_hash": "6f7", "region": "eu-west-1", "service": "support-llm", "version": "7"}
    own = {"engine": "0", "model_name": "0"}
    assert labels(url, 'vllm:num_requests_running{role="canary"}') == [own | arm | {"role": "canary"}]
    assert labels(url, 'vllm:num_requests_running{role!="canary"}') == [own | arm | {"role": "previous"}]


def test_gpus_have_the_labels_of_the_pod_that_uses_them_and_those_of_others_are_left_out(url: str) -> None:
    (only,) = labels(url, "DCGM_FI_DEV_GPU_UTIL")
    arm = {"service": "support-llm", "region": "eu-west-1", "version": "7", "role": "canary"}
    assert only.items() >= {"gpu": "0", **arm}.items()
    assert not [name for name in only if name.startswith("tidegate_dev") or name.startswith("rollouts")]


@pytest.mark.parametrize("metric", [*VLLM, *OF_STARTS, GPU_UTILISATION], ids=lambda metric: metric.name)
def test_whatever_rules_may_ask_for_is_kept(url: str, metric: Any) -> None:
    for series in metric.series:
        assert labels(url, f'{series}{{role="canary"}}'), series


def test_what_nobody_reads_is_dropped(url: str) -> None:
    assert labels(url, '{__name__=~".+_created|python_gc_.+"}') == []
