"""The inventory is what a running fleet exports, and what vLLM's own sources say."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from fakes.engines.exposition import agree, exported

from engine_images.adapters.environment import find_engine_environment
from engine_images.errors import EnvironmentMissing
from slo.metrics import E2E, ENVOY, ITL, QUEUE_TIME, TIME_PER_OUTPUT_TOKEN, TTFT, VLLM, PrometheusMetric
from slo.spec import edge_label

SCRAPED = Path(__file__).parents[2] / "golden" / "metrics"
"""One scrape of an engine and of a proxy of the demo's fleet, before relabelling."""


@pytest.mark.parametrize(("file", "known"), [("engine.txt", VLLM), ("envoy.txt", ENVOY)])
def test_a_scrape_and_the_inventory_say_the_same(file: str, known: tuple[PrometheusMetric, ...]) -> None:
    found = exported((SCRAPED / file).read_text())
    always = [metric for metric in known if not metric.only_with]
    assert [metric.name for metric in always if not agree(found[metric.name], metric)] == []


def test_edges_are_written_as_the_engine_writes_them() -> None:
    text = (SCRAPED / "engine.txt").read_text()
    for histogram in (TTFT, ITL, E2E, QUEUE_TIME, TIME_PER_OUTPUT_TOKEN):
        for edge in histogram.edges:
            assert re.search(rf'^{histogram.name}_bucket{{.*le="{re.escape(edge_label(edge))}"', text, re.MULTILINE)


@pytest.fixture(scope="module")
def vllm() -> Path:
    try:
        environment = find_engine_environment()
    except EnvironmentMissing:
        pytest.skip("needs the engine environment")
    (package,) = Path(environment.python).parents[1].glob("lib/python*/site-packages/vllm")
    return package


def test_the_sources_of_vllm_name_the_same_metrics(vllm: Path) -> None:
    """Those of its core; KV connectors and the realtime endpoint add their own elsewhere."""
    files = [vllm / "v1" / "metrics" / "loggers.py", vllm / "v1" / "metrics" / "perf.py"]
    files.append(vllm / "v1" / "spec_decode" / "metrics.py")
    named = set(re.findall(r'"(vllm:[a-z0-9_]+)"', "".join(file.read_text() for file in files)))
    ours = {metric.name for metric in VLLM if metric.name.startswith("vllm:")}
    # Most counters are named without `_total` in Python; scraped, they all have it.
    assert {name.removesuffix("_total") for name in ours} <= {name.removesuffix("_total") for name in named}


def test_the_sources_of_vllm_have_the_same_edges(vllm: Path) -> None:
    buckets = runpy.run_path(str(vllm / "v1" / "metrics" / "buckets.py"))
    assert TTFT.edges == buckets["TIME_TO_FIRST_TOKEN_BUCKETS"]
    assert ITL.edges == TIME_PER_OUTPUT_TOKEN.edges == buckets["INTER_TOKEN_LATENCY_BUCKETS"]
    assert E2E.edges == QUEUE_TIME.edges == buckets["REQUEST_LATENCY_BUCKETS"]
