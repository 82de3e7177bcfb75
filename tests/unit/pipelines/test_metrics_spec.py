"""What gates read of Prometheus: what a spec may say of it, and what the doctor asks."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import promql_parser as promql
import pytest
from fakes.clusters.region import a_fleet
from fakes.delivery.world import SPEC
from fakes.metrics.queries import metric_of

from pipelines.doctor import asked_of_prometheus
from pipelines.spec.delivery import Delivery
from rollouts.doctor.model import metrics_of
from tidegate.core.spec import SpecError, load_spec, parse_spec

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


EXAMPLES = Path(__file__).parents[3] / "examples"
OF_EVERY_TARGET = {"up"}


@pytest.fixture(scope="module")
def asked() -> dict[str, str]:
    spec = load_spec(EXAMPLES / "kubernetes/delivery.yaml", Delivery)
    return {f"{one.asked_by}: {one.query}": one.query for one in asked_of_prometheus(spec, "eu-west-1")}


def test_everybody_who_decides_is_asked_for(asked: dict[str, str]) -> None:
    askers = {name.split(": ")[0] for name in asked}
    assert askers == {
        "every gate",
        "gate latency",
        "gate errors",
        "SLO availability",
        "SLO first-token",
    }


def test_every_question_is_promql(asked: dict[str, str]) -> None:
    for query in asked.values():
        promql.parse(query)


def test_every_question_is_on_metrics_that_engines_export(asked: dict[str, str]) -> None:
    names = {name for query in asked.values() for name in metrics_of(query)}
    assert {name for name in names - OF_EVERY_TARGET if metric_of(name) is None} == set()


def test_a_gate_that_no_stage_asks_is_not_asked_for() -> None:
    spec = load_spec(EXAMPLES / "kubernetes/delivery.yaml", Delivery)
    quiet = spec.model_copy(update={"stages": spec.stages[:1]})
    assert {one.asked_by.split()[0] for one in asked_of_prometheus(quiet, "eu-west-1")} == {"every", "SLO"}
