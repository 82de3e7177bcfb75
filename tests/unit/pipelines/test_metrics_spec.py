"""How often metrics are scraped, and how often evidence may be looked at therefore."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from fakes.clusters.region import a_fleet
from fakes.delivery.world import SPEC

from pipelines.spec.delivery import Delivery
from tidegate.core.spec import SpecError, parse_spec

CLUSTERS = "fleet: " + json.dumps(a_fleet("eu-west-1", "us-east-1").model_dump(mode="json", exclude_unset=True))


def spec(*lines: str, look: str = "") -> str:
    """The usual spec with more lines, and a look where one is given."""
    return SPEC.replace("gates:", f"gates:\n  budget: {{poll_interval: {look}}}" if look else "gates:") + "\n".join(
        lines
    )


def read(text: str) -> Delivery:
    return parse_spec(text, Delivery, file="delivery.yaml")


def problem(text: str) -> str:
    with pytest.raises(SpecError) as caught:
        read(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("lines", "interval", "look"),
    [
        ((CLUSTERS,), 5, 15),
        ((CLUSTERS, "metrics: {scrape_interval: 15s}"), 15, 45),
        ((CLUSTERS, "metrics: {scrape_interval: 2s}"), 2, 10),
        ((), 2, 10),
        (("metrics: {scrape_interval: 2s}",), 2, 10),
    ],
)
def test_a_look_is_three_scrapes_and_ten_seconds_at_least(lines: tuple[str, ...], interval: int, look: int) -> None:
    found = read(spec(*lines))
    assert (found.scrape_interval, found.look) == (timedelta(seconds=interval), timedelta(seconds=look))


def test_a_look_that_is_asked_for_is_had() -> None:
    assert read(spec(look="6s")).look == timedelta(seconds=6)
    assert read(spec(CLUSTERS, look="1m")).look == timedelta(minutes=1)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            spec(CLUSTERS, look="10s"),
            "8: gates.budget.poll_interval: found 10s; "
            "expected at least 15s, three scrapes: `metrics.scrape_interval` is 5s",
        ),
        (
            spec(look="5s"),
            "8: gates.budget.poll_interval: found 5s; "
            "expected at least 6s, three scrapes: `metrics.scrape_interval` is 2s",
        ),
        (
            spec("metrics: {scrape_interval: 5s}"),
            "18: metrics.scrape_interval: found 5s; expected 2s, in which the fleet on this machine scrapes",
        ),
        (
            spec(CLUSTERS, "metrics: {scrape_interval: 1m}"),
            "19: metrics.scrape_interval: found '1m'; expected less than or equal to 30s",
        ),
    ],
)
def test_what_gates_could_not_count_with_is_told_in_one_line(text: str, sentence: str) -> None:
    assert problem(text) == f"delivery.yaml:{sentence}"


def with_sources(*sources: str) -> str:
    """The usual spec in clusters, with sources of metrics."""
    lines = CLUSTERS + "\nmetrics:\n  sources:\n" + "".join(f"    - {{{each}}}\n" for each in sources)
    return spec(lines)


ISTIO = "preset: istio, arms: {stable: support-llm-stable, canary: support-llm-canary, shadow: support-llm-canary}"
VLLM = "preset: vllm, signals: [ttft, itl, engines]"
WITHOUT = "which no source of `metrics.sources` has (istio: requests, e2e); expected a source with preset vllm"


def test_a_mesh_and_the_engines_tell_together() -> None:
    read(with_sources(ISTIO, VLLM))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (with_sources(ISTIO), f"gates.latency.metric: found ttft, {WITHOUT}"),
        (with_sources(VLLM), "gates.errors: found requests, which no source of `metrics.sources` has (vllm: ttft"),
        (
            with_sources(ISTIO.replace(", shadow: support-llm-canary", ""), VLLM),
            "metrics.sources[0].arms.shadow: found nothing, and a stage that copies requests",
        ),
        (
            with_sources(ISTIO, VLLM) + "slos: [{name: cache, objective: 95, queue_time: {below: 1s}}]\n",
            "slos[0].queue_time: found queue_time, which no source of `metrics.sources` has",
        ),
        (
            with_sources(ISTIO).replace("latency: {", "latency: {metric: e2e, ")
            + "slos: [{name: cache, objective: 95, kv_cache: {below: 90%}}]\n",
            f"slos[0].kv_cache: found engines, {WITHOUT}",
        ),
        (
            with_sources(ISTIO, VLLM) + "slos: [{name: up, objective: 99, errors: {counted_by: engine}}]\n",
            "slos[0].errors.counted_by: found engine next to `metrics.sources`",
        ),
        (
            spec("metrics: {sources: [{preset: vllm}]}"),
            "metrics.sources: found sources in the local fleet; expected `fleet: {kind: argo, ...}`",
        ),
    ],
)
def test_what_no_source_tells_is_refused_where_it_is_asked(text: str, sentence: str) -> None:
    assert sentence in problem(text)
