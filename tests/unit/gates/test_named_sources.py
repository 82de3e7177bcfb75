"""Evidence under names that are not ours: units, streams that a label says were cut, and what nobody tells."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gates.evidence.batch import ArmName, Batch, Buckets
from gates.evidence.names import EvidenceNames, named_by
from gates.evidence.scrape import batch_of
from gates.evidence.series import ArmScrapes, RawSeries, ScrapeWindow, Targets
from gates.model import ArmKey
from tidegate.core.metrics import MetricSource

KEY = ArmKey(region="", role="canary", version="7")
ARMS = {"stable": "llm-stable", "canary": "llm-canary"}


def names_of(preset: str, **said: object) -> EvidenceNames:
    return named_by([MetricSource.model_validate({"preset": preset, "arms": ARMS} | said)], service="llm")


def counted(name: str, *values: float, **labels: str) -> RawSeries:
    """Scraped every 10 s of one target."""
    own = {"job": "gateway", "instance": "a"} | labels
    return RawSeries(name=name, labels=own, values=tuple((10.0 * at, value) for at, value in enumerate(values)))


def batch(names: EvidenceNames, *series: RawSeries) -> Batch:
    lives = [({"job": "gateway", "instance": "a"}, [(10.0 * step, 1.0) for step in range(3)])]
    window = ScrapeWindow(since=0.0, until=20.0, targets=Targets(lives, [], lookback_seconds=120))
    arm = ArmScrapes(arm=ArmName.CANARY, key=KEY, series=series)
    return batch_of([arm], window, names)


def test_istio_says_by_a_flag_which_streams_were_cut() -> None:
    def requests(code: str, flags: str, *values: float) -> RawSeries:
        return counted("istio_requests_total", *values, response_code=code, response_flags=flags)

    found = batch(
        names_of("istio"),
        requests("200", "-", 0, 40, 80),
        requests("200", "UC", 0, 1, 1),
        requests("200", "DPE,UR", 0, 0, 2),
        requests("200", "DC", 0, 5, 5),  # The client went away.
        requests("503", "UF", 0, 3, 3),
        requests("404", "-", 0, 2, 2),
    )
    assert [(pod.pod, pod.requests, pod.errors, pod.refused) for pod in found.arms] == [("", 93, 6, 2)]


@pytest.mark.parametrize(
    ("preset", "metric", "labels", "edges"),
    [
        ("istio", "istio_request_duration_milliseconds", {"response_code": "200"}, ("250", "1000")),
        ("envoy-gateway", "envoy_cluster_upstream_rq_time", {}, ("250", "1000")),
        ("nginx", "nginx_ingress_controller_request_duration_seconds", {"status": "200"}, ("0.25", "1")),
    ],
)
def test_times_are_seconds_whatever_the_metric_counts_in(
    preset: str, metric: str, labels: dict[str, str], edges: tuple[str, str]
) -> None:
    low, high = edges
    found = batch(
        names_of(preset),
        counted(f"{metric}_bucket", 0, 3, 6, le=low, **labels),
        counted(f"{metric}_bucket", 0, 5, 9, le=high, **labels),
        counted(f"{metric}_bucket", 0, 5, 10, le="+Inf", **labels),
    )
    assert [pod.e2e for pod in found.arms] == [Buckets(edges=(0.25, 1.0), counts=(6, 3, 1))]


def test_times_of_failed_requests_are_none_where_a_label_says_so() -> None:
    series = [
        counted("istio_request_duration_milliseconds_bucket", 0, 3, 6, le=le, response_code="503")
        for le in ("5", "+Inf")
    ]
    found = batch(names_of("istio"), *series)
    assert not found.arms
    assert found.missing["e2e"].startswith("Prometheus has no istio_request_duration_milliseconds of canary version 7")


def test_what_no_source_tells_is_missing_and_not_zero() -> None:
    missing = batch(names_of("nginx")).missing
    assert missing["ttft"] == "no source of this Prometheus tells ttft"
    assert (
        missing["requests"] == "Prometheus has no nginx_ingress_controller_requests of canary version 7 in this window"
    )


def test_a_timeout_after_the_headers_is_an_error_and_a_504_is_one_once() -> None:
    found = batch(
        names_of("envoy-gateway"),
        counted("envoy_cluster_upstream_rq", 0, 50, 100, envoy_response_code="200"),
        counted("envoy_cluster_upstream_rq", 0, 4, 4, envoy_response_code="504"),
        counted("envoy_cluster_upstream_rq_timeout", 0, 4, 7),
        counted("envoy_cluster_upstream_cx_destroy_remote_with_active_rq", 0, 0, 0),
    )
    assert [(pod.requests, pod.errors) for pod in found.arms] == [(104, 7)]


PAGES = {
    # vllm/engine/metrics.py of 0.6: a time for each token alone, and prometheus-fastapi-instrumentator's counter.
    "vllm 0.6": """
http_requests_total{handler="/v1/chat/completions",method="POST",status="2xx"} 10
http_requests_total{handler="/v1/completions",method="POST",status="5xx"} 2
http_requests_total{handler="/metrics",method="GET",status="2xx"} 700
vllm:time_to_first_token_seconds_bucket{le="0.25",model_name="m"} 6
vllm:time_to_first_token_seconds_bucket{le="+Inf",model_name="m"} 10
vllm:time_per_output_token_seconds_bucket{le="0.05",model_name="m"} 380
vllm:time_per_output_token_seconds_bucket{le="+Inf",model_name="m"} 400
vllm:e2e_request_latency_seconds_bucket{le="1.0",model_name="m"} 7
vllm:e2e_request_latency_seconds_bucket{le="+Inf",model_name="m"} 10
vllm:request_success_total{finished_reason="stop",model_name="m"} 10
""",
    # vllm/v1/metrics/loggers.py since 0.11, with a label for each engine of a pod.
    "vllm 0.33": """
http_requests_total{handler="/v1/chat/completions",method="POST",status="2xx"} 10
http_requests_total{handler="/tokenize",method="POST",status="2xx"} 70
http_requests_total{handler="/v1/completions",method="POST",status="5xx"} 2
http_requests_total{handler="/metrics",method="GET",status="2xx"} 700
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.25",model_name="m"} 2
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 3
vllm:time_to_first_token_seconds_bucket{engine="1",le="0.25",model_name="m"} 4
vllm:time_to_first_token_seconds_bucket{engine="1",le="+Inf",model_name="m"} 7
vllm:inter_token_latency_seconds_bucket{engine="0",le="+Inf",model_name="m"} 400
vllm:request_time_per_output_token_seconds_bucket{engine="0",le="0.05",model_name="m"} 9
vllm:request_time_per_output_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 10
vllm:e2e_request_latency_seconds_bucket{engine="0",le="1.0",model_name="m"} 7
vllm:e2e_request_latency_seconds_bucket{engine="0",le="+Inf",model_name="m"} 10
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 10
""",
    "llm-d-inference-sim": """
vllm:time_to_first_token_seconds_bucket{le="0.25",model_name="m"} 6
vllm:time_to_first_token_seconds_bucket{le="+Inf",model_name="m"} 10
vllm:request_time_per_output_token_seconds_bucket{le="0.05",model_name="m"} 9
vllm:request_time_per_output_token_seconds_bucket{le="+Inf",model_name="m"} 10
vllm:inter_token_latency_seconds_bucket{le="+Inf",model_name="m"} 400
vllm:e2e_request_latency_seconds_bucket{le="1",model_name="m"} 7
vllm:e2e_request_latency_seconds_bucket{le="+Inf",model_name="m"} 10
""",
    "sglang": """
sglang:http_responses_total{endpoint="/v1/chat/completions",method="POST",status_code="200"} 10
sglang:http_responses_total{endpoint="/generate",method="POST",status_code="500"} 2
sglang:http_responses_total{endpoint="/health",method="GET",status_code="200"} 700
sglang:time_to_first_token_seconds_bucket{le="0.25",model_name="m",is_streaming="true"} 6
sglang:time_to_first_token_seconds_bucket{le="+Inf",model_name="m",is_streaming="true"} 10
sglang:inter_token_latency_seconds_bucket{le="+Inf",model_name="m"} 400
sglang:request_time_per_output_token_seconds_bucket{le="0.05",model_name="m",stream="true"} 9
sglang:request_time_per_output_token_seconds_bucket{le="+Inf",model_name="m",stream="true"} 10
sglang:e2e_request_latency_seconds_bucket{le="1",model_name="m",is_streaming="true"} 7
sglang:e2e_request_latency_seconds_bucket{le="+Inf",model_name="m",is_streaming="true"} 10
""",
    "tgi": """
tgi_request_success 10
tgi_request_failure{err="overloaded"} 2
tgi_request_mean_time_per_token_duration_bucket{le="0.05"} 9
tgi_request_mean_time_per_token_duration_bucket{le="+Inf"} 10
tgi_request_duration_bucket{le="1"} 7
tgi_request_duration_bucket{le="+Inf"} 10
""",
    "triton": """
nv_inference_request_success{model="m",version="1"} 10
nv_inference_first_response_histogram_ms_bucket{model="m",version="1",le="250"} 6
nv_inference_first_response_histogram_ms_bucket{model="m",version="1",le="+Inf"} 10
""",
}
"""Lines as each of them writes its page of metrics, made small."""
TIMES = {"ttft": (0.25, 6), "itl": (0.05, 9), "e2e": (1.0, 7)}
TOLD = {
    "vllm 0.6": "requests ttft e2e",
    "vllm 0.33": "requests ttft itl e2e",
    "llm-d-inference-sim": "ttft itl e2e",
    "sglang": "requests ttft itl e2e",
    "tgi": "itl e2e",
    "triton": "ttft",
}


@pytest.mark.parametrize("engine", PAGES)
def test_a_page_of_metrics_is_read_as_its_engine_means_it(engine: str) -> None:
    samples = [each for family in text_string_to_metric_families(PAGES[engine]) for each in family.samples]
    names = names_of(engine.split(maxsplit=1)[0], arms={**ARMS, "label": "track"})
    told = TOLD[engine].split()
    found = batch(names, *(counted(each.name, 0, 0, each.value, **each.labels) for each in samples))
    (pod,) = found.arms
    assert (pod.requests, pod.errors) == ((12, 2) if "requests" in told else (0, 0))
    for time, (edge, fast) in TIMES.items():
        expected = Buckets(edges=(edge,), counts=(fast, 10 - fast)) if time in told else ()
        assert getattr(pod, time) == expected
        assert (time in found.missing) is (time not in told)
    if "requests" not in told:
        assert found.missing["requests"] == "no source of this Prometheus tells requests"
    if engine == "vllm 0.6":
        lacking = "Prometheus has no vllm:request_time_per_output_token_seconds of canary version 7"
        assert found.missing["itl"].startswith(lacking)


def test_one_query_for_each_source_and_arm() -> None:
    sources = [
        MetricSource.model_validate(
            {"preset": "istio", "arms": ARMS, "match": {"destination_service_namespace": "a|b"}}
        ),
        MetricSource.model_validate({"preset": "vllm"}),
    ]
    mesh, engines = named_by(sources, service="llm").reads
    assert mesh.match(KEY) == {"destination_service_name": "llm-canary"}
    assert mesh.like == {"reporter": "source", "destination_service_namespace": "a|b"}
    assert "vllm:time_to_first_token_seconds_bucket" in engines.names
    assert not {"http_requests_total", "vllm:e2e_request_latency_seconds_bucket"} & set(engines.names)
    assert engines.match(KEY) == {"service": "llm", "role": "canary", "version": "7"}
