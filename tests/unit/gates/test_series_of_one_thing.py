"""Two series of one thing are one: replicas of a Prometheus, an edge under two spellings, a marker at a series' end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from fakes.services.http import page

from gates.adapters.prometheus import PrometheusSource
from gates.analyses.queries import Window
from gates.evidence.batch import ArmName
from gates.evidence.series import RawSeries, without_replicas
from gates.model import ArmKey
from tidegate.core.metrics import MetricSource, PresetName

CANARY = ArmKey(region="eu", role="canary", version="7")
STABLE = ArmKey(region="eu", role="stable", version="6")
BEGIN, LENGTH = 100_000, 300
WINDOW = Window(datetime.fromtimestamp(BEGIN, UTC), datetime.fromtimestamp(BEGIN + LENGTH, UTC))
OF_POD = {"job": "engines", "instance": "c0:8000", "pod": "c0", "version": "7"}

Samples = Sequence[tuple[float, object]]


def counter(each: float, *, late: float = 0, begin: float = 50) -> list[tuple[float, float]]:
    """Scraped every 10 s, of an event every 10 / `each` s; another scraper comes `late`."""
    return [(BEGIN - 60 + 10 * n + late, float(int(begin + each * (n + late / 10)))) for n in range(36)]


def once(*labelled: tuple[Mapping[str, str], Samples]) -> int:
    series = [
        RawSeries(
            name="calls_total",
            labels={**OF_POD, **more},
            values=tuple((at, float(str(value))) for at, value in samples),
        )
        for more, samples in labelled
    ]
    return len(without_replicas(series))


@pytest.mark.parametrize(
    ("series", "left"),
    [
        ([({"prometheus_replica": "a"}, counter(7)), ({"prometheus_replica": "b"}, counter(7, late=3))], 1),
        ([({"scraper": "a"}, counter(7)), ({"scraper": "b"}, counter(7, late=3))], 1),
        ([({"scraper": "a"}, counter(7)), ({}, counter(7, late=3))], 1),
        ([({"__replica__": n}, counter(7, late=3 * int(n))) for n in "012"], 1),
        # Receivers keep what one scraper sent to each of them.
        (
            [
                ({"receive_replica": n, "prometheus_replica": m}, counter(7, late=3 * int(m)))
                for n in "01"
                for m in "01"
            ],
            1,
        ),
        # Two engines of a pod, alike to the last request, and two replicas of Ray Serve.
        ([({"engine": n}, counter(7)) for n in "01"], 2),
        ([({"replica": "a"}, counter(7)), ({"replica": "b"}, counter(7, begin=51))], 2),
        # Metrics with times of their own.
        ([({"shard": "a"}, counter(7)), ({"shard": "b"}, counter(2, late=3))], 2),
        # One scraper took over from the other.
        ([({"replica": "a"}, counter(7)[:10]), ({"replica": "b"}, counter(7, late=3)[10:])], 2),
    ],
)
def test_replicas_are_one_series_and_other_labels_add_up(
    series: list[tuple[dict[str, str], Samples]], left: int
) -> None:
    assert once(*series) == left


def answer(name: str, *labelled: tuple[Mapping[str, str], Samples]) -> list[dict[str, Any]]:
    return [
        {"metric": {"__name__": name, **OF_POD, **more}, "values": [[at, str(value)] for at, value in samples]}
        for more, samples in labelled
    ]


def serving(result: list[dict[str, Any]]) -> Any:
    body = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    return page(lambda: json.dumps(body))


def test_queries_count_what_two_replicas_scraped_once() -> None:
    both = [({"prometheus_replica": name}, counter(7, late=late)) for name, late in (("a", 0), ("b", 3))]
    edges = [
        ({"prometheus_replica": name, "le": le}, counter(each, late=late))
        for name, late in (("a", 0), ("b", 3))
        for le, each in (("1", 5), ("+Inf", 7))
    ]
    with serving(answer("calls_total", *both)) as address:
        queries = PrometheusSource(f"http://{address}")
        assert queries.counted("x", CANARY, WINDOW) == {"c0": 7 * 29} and queries.summed("x", CANARY, WINDOW) == {
            "c0": 7 * 29
        }
    with serving(answer("calls_bucket", *edges)) as address:
        (found,) = PrometheusSource(f"http://{address}").distributed("x", CANARY, WINDOW).values()
        assert (found.edges, found.counts) == ((1.0,), (5 * 29, 2 * 29))


def test_evidence_counts_what_two_replicas_scraped_once() -> None:
    requests = {"handler": "/v1/completions", "method": "POST", "status": "200"}
    result = []
    for name, late in (("a", 0), ("b", 3)):
        replica = {"replica": name, "region": "eu"}
        result += answer("http_requests_total", ({**replica, **requests}, counter(7, late=late)))
        result += answer("up", (replica, [(at, 1) for at, _ in counter(7, late=late)]))
    with serving(result) as address:
        source = PrometheusSource(f"http://{address}", sources=[MetricSource(preset=PresetName.VLLM)])
        batch = source.batch(STABLE, CANARY, WINDOW.since, WINDOW.until)
    assert {pod.requests for pod in batch.arms if pod.arm is ArmName.CANARY} == {7 * 29}


def test_an_edge_is_one_through_an_upgrade_of_prometheus() -> None:
    parts = [({"le": "1"}, counter(5)[:15]), ({"le": "1.0"}, counter(5)[15:]), ({"le": "+Inf"}, counter(7))]
    with serving(answer("calls_bucket", *parts)) as address:
        (found,) = PrometheusSource(f"http://{address}").distributed("x", CANARY, WINDOW).values()
    assert found.counts == (5 * 29, 2 * 29)


def test_a_marker_is_no_value_and_a_counter_that_stays_nan_is_refused() -> None:
    ended = [*counter(7)[:20], (BEGIN + 150, "NaN")]
    poisoned = [*counter(7)[:20], *((BEGIN + 150 + 10 * n, "NaN") for n in range(9))]
    with serving(answer("calls_total", ({}, ended))) as address:
        assert PrometheusSource(f"http://{address}").counted("x", CANARY, WINDOW) == {"c0": 7 * 13}
    with serving(answer("calls_total", ({}, poisoned))) as address, pytest.raises(Exception, match="no number"):
        PrometheusSource(f"http://{address}").counted("x", CANARY, WINDOW)
