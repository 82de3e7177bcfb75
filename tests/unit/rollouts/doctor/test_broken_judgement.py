"""Set-ups in which an analysis or a gate would say yes, or nothing, or in which nobody decides."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from fakes.clusters.doctor_region import NAME, Region

from rollouts.doctor.queries import EvidenceQuery
from rollouts.errors import (
    PrometheusCertificateUntrusted,
    PrometheusCredentialMissing,
    PrometheusCredentialRefused,
    Unreachable,
)
from rollouts.kube.resources import ANALYSIS_RUNS, ANALYSIS_TEMPLATES, DEPLOYMENTS, ROLLOUTS
from tidegate.core.model import Json

BOTH = {"successCondition": "result[0] <= 0.05", "failureCondition": "result[0] > 0.05"}
ERRORS = 'sum(rate(http_requests_total{status=~"4..|5.."}[5m])) / sum(rate(http_requests_total[5m]))'
BLIND = 'sum(rate(http_requests_total{status=~"5.."}[5m])) / sum(rate(http_requests_total[5m]))'


def metric(name: str = "errors", query: str = ERRORS, **fields: Any) -> Json:
    provider = {"prometheus": {"address": "http://prometheus:9090", "query": query}}
    return {"name": name, "provider": provider, "interval": "30s", "count": 5, **fields}


def watched(region: Region, *metrics: Json, args: tuple[Json, ...] = (), given: tuple[Json, ...] = ()) -> None:
    """The Rollout's canary is watched by a template with these metrics."""
    spec: Json = {"metrics": list(metrics)} | ({"args": list(args)} if args else {})
    metadata = {"name": "quality", "namespace": "llm"}
    region.bring({"apiVersion": "argoproj.io/v1alpha1", "kind": "AnalysisTemplate", "metadata": metadata, "spec": spec})
    region.strategy(analysis={"templates": [{"templateName": "quality"}], "args": list(given)})
    region.wait(60)


async def test_an_analysis_that_is_right(region: Region) -> None:
    watched(region, metric(**BOTH))
    assert await region.found() == set()
    assert ERRORS in region.prometheus.asked


async def test_a_template_that_is_not_there(region: Region) -> None:
    watched(region, metric(**BOTH))
    region.cluster.delete(ANALYSIS_TEMPLATES, "quality")
    assert {"analysis-missing"} <= await region.found() <= {"analysis-missing", "rollout-invalid"}


async def test_an_argument_without_a_value(region: Region) -> None:
    watched(region, metric(query="errors{version='{{args.version}}'}", **BOTH), args=({"name": "version"},))
    assert {"analysis-argument-missing"} <= await region.found()


async def test_a_failure_condition_alone(region: Region) -> None:
    watched(region, metric(failureCondition="result[0] > 0.05"))
    assert await region.found() == {"analysis-nan-passes"}


async def test_a_success_condition_alone(region: Region) -> None:
    watched(region, metric(successCondition="result[0] <= 0.05"))
    assert await region.found() == {"analysis-nan-fails"}


async def test_one_condition_that_knows_of_nan(region: Region) -> None:
    watched(region, metric(failureCondition="isNaN(result[0]) || result[0] > 0.05"))
    assert await region.found() == set()


async def test_no_condition(region: Region) -> None:
    watched(region, metric())
    assert await region.found() == {"analysis-without-condition"}


async def test_a_count_is_never_nan(region: Region) -> None:
    watched(region, metric(query='sum(increase(errors{path="a/b"}[5m]))', failureCondition="result[0] > 5"))
    assert await region.found() == set()


async def test_a_metric_whose_turn_never_comes_under_an_old_controller(region: Region) -> None:
    watched(region, metric(**BOTH), metric("latency", initialDelay="10m", **BOTH))
    assert await region.found() == set()

    def older(it: Json) -> None:
        it["spec"]["template"]["spec"]["containers"][0]["image"] = "quay.io/argoproj/argo-rollouts:v1.0.2"

    region.edit(DEPLOYMENTS, "argo-rollouts", older, namespace="argo-rollouts")
    region.wait(60)
    (found,) = await region.examined()
    assert (found.code, found.evidence) == (
        "analysis-never-measured",
        ("initialDelay 600 s; the others are done after 120 s",),
    )


async def test_a_run_that_passed_without_a_measurement(region: Region) -> None:
    rollout = region.cluster.get(ROLLOUTS, NAME)
    owner = {"kind": "Rollout", "name": NAME, "uid": rollout["metadata"]["uid"], "controller": True}
    run = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "AnalysisRun",
        "metadata": {"name": "run-1", "namespace": "llm", "ownerReferences": [owner]},
        "spec": {"metrics": []},
        "status": {"phase": "Successful", "metricResults": []},
    }
    region.at_last.append(lambda: region.cluster.create(ANALYSIS_RUNS, run))
    assert await region.found() == {"analysis-without-samples"}


async def test_measurements_that_end_in_errors(canary: Region) -> None:
    rollout = canary.cluster.get(ROLLOUTS, NAME)
    owner = {"kind": "Rollout", "name": NAME, "uid": rollout["metadata"]["uid"], "controller": True}
    failed = {"name": "errors", "count": 0, "consecutiveError": 3, "measurements": [{"message": "reflect: no value"}]}
    run = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "AnalysisRun",
        "metadata": {"name": "run-1", "namespace": "llm", "ownerReferences": [owner]},
        "spec": {"metrics": []},
        "status": {"phase": "Running", "metricResults": [failed]},
    }
    canary.at_last.append(lambda: canary.cluster.create(ANALYSIS_RUNS, run))
    assert await canary.found() == {"analysis-errors"}


# Evidence


async def test_a_query_on_a_metric_that_nobody_exports(region: Region) -> None:
    region.questions = (EvidenceQuery(asked_by="gate errors", query="sum(rate(litellm_requests_total[5m]))"),)
    region.prometheus.unknown = {"litellm_requests_total"}
    (found,) = await region.examined()
    assert (found.code, "litellm_requests_total" in found.what) == ("metric-unknown", True)


async def test_a_template_on_a_metric_that_nobody_exports(region: Region) -> None:
    watched(region, metric(query="sum(litellm_errors)", **BOTH))
    region.prometheus.unknown = {"litellm_errors"}
    assert await region.found() == {"metric-unknown"}


async def test_a_query_that_has_no_samples_now(region: Region) -> None:
    region.questions = (EvidenceQuery(asked_by="gate latency", query='sum(requests{region="eu-west-2"})'),)
    region.prometheus.silent = {"eu-west-2"}
    assert await region.found() == {"query-without-samples"}


async def test_a_query_that_is_zero_over_zero(region: Region) -> None:
    region.questions = (EvidenceQuery(asked_by="gate errors", query="sum(bad) / sum(all)"),)
    region.prometheus.nan = {"sum(bad)"}
    (found,) = await region.examined()
    assert (found.code, "NaN" in found.what) == ("query-without-samples", True)


async def test_a_question_that_may_be_silent(region: Region) -> None:
    quiet = EvidenceQuery(
        asked_by="gate errors, answers 4xx", query='requests{code=~"4.."}', silent_without_traffic=True
    )
    region.questions = (quiet,)
    region.prometheus.silent = {"4.."}
    assert await region.found() == set()


async def test_a_query_that_is_no_promql(region: Region) -> None:
    region.questions = (EvidenceQuery(asked_by="SLO availability", query="sum(rate("),)
    region.prometheus.refused = {"sum(rate("}
    assert await region.found() == {"query-refused"}


async def test_a_prometheus_that_is_away(region: Region) -> None:
    region.questions = (EvidenceQuery(asked_by="gate latency", query="up"),)
    region.prometheus.away = True
    assert await region.found() == {"prometheus-away"}


@pytest.mark.parametrize(
    ("trouble", "code"),
    [
        (PrometheusCredentialMissing("the variable TIDEGATE_SPEC_TOKEN is not set"), "prometheus-credential-missing"),
        (PrometheusCredentialRefused("refuses the token (401)", detail="no org id"), "prometheus-credential-refused"),
        (PrometheusCertificateUntrusted("self-signed certificate"), "prometheus-certificate-untrusted"),
    ],
)
async def test_a_prometheus_that_lets_nobody_in(region: Region, trouble: Unreachable, code: str) -> None:
    region.questions = (EvidenceQuery(asked_by="gate latency", query="up"),)
    region.prometheus.trouble = trouble
    (found,) = await region.examined()
    assert (found.code, *found.evidence) == (code, trouble.message, *([trouble.detail] if trouble.detail else []))


async def test_a_tenant_that_has_nothing_is_told_once_for_all_queries(region: Region) -> None:
    region.questions = (EvidenceQuery(asked_by="gate latency", query="requests"),)
    region.prometheus.empty, region.tenant = True, "team-b"
    (found,) = await region.examined()
    assert (found.code, "team-b" in found.what) == ("prometheus-tenant-empty", True)


async def test_a_tenant_with_other_series_is_the_right_one(region: Region) -> None:
    region.questions = (EvidenceQuery(asked_by="gate latency", query="requests"),)
    region.prometheus.unknown, region.tenant = {"requests"}, "team-a"
    assert await region.found() == {"metric-unknown"}


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (15.0, "15s, and `metrics.scrape_interval` is 5s: a look of 15s has one scrape of each"),
        (30.0, "30s, and `metrics.scrape_interval` is 5s: a look of 15s has not even one scrape of each"),
        (1.0, "1s, and `metrics.scrape_interval` is 5s: a look of 15s has 15 scrapes of each"),
    ],
)
async def test_engines_that_are_scraped_at_another_interval(region: Region, seconds: float, told: str) -> None:
    region.prometheus.scraped_every = seconds
    (finding,) = await region.examined()
    assert finding.code == "scrape-interval-differs"
    assert finding.what == f"eu-west-1: Prometheus scrapes engines every {told}"


@pytest.mark.parametrize("seconds", [4.9, 5.4, float("nan")])
async def test_a_late_scrape_or_an_engine_that_was_scraped_once_is_no_other_interval(
    region: Region, seconds: float
) -> None:
    region.prometheus.scraped_every = seconds
    assert await region.found() == set()


async def test_a_prometheus_without_subqueries_says_nothing_of_its_interval(region: Region) -> None:
    region.prometheus.refused = {"changes(timestamp("}
    assert await region.found() == set()


async def test_errors_that_do_not_count_404(region: Region) -> None:
    watched(region, metric(query=BLIND, **BOTH))
    assert await region.found() == {"refusals-not-counted"}


async def test_404_that_somebody_else_counts(region: Region) -> None:
    watched(region, metric(query=BLIND, **BOTH))
    region.questions = (EvidenceQuery(asked_by="gate errors", query='sum(requests{code=~"4.."})'),)
    assert await region.found() == set()


# Rights, clocks, and nobody who decides


async def test_a_right_that_is_missing(region: Region) -> None:
    read = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}
    region.api.access.allow_only(read, everywhere=(read,))
    (found,) = await region.examined(rights=True)
    assert found.code == "access-denied"
    assert f"may not patch rollouts/status {NAME}" in found.evidence


async def test_clocks_that_differ(region: Region) -> None:
    region.api.clock_skew_seconds = 40
    (found,) = await region.examined()
    assert (found.code, "40 s ahead of" in found.what) == ("clock-skew", True)


async def test_a_second_of_difference_is_none(region: Region) -> None:
    region.api.clock_skew_seconds = -2
    assert await region.found() == set()


async def test_a_rollout_that_was_aborted_and_left(canary: Region) -> None:
    canary.cluster.patch(ROLLOUTS, NAME, {"status": {"abort": True}}, subresource="status")
    canary.wait(600)
    assert await canary.found() == {"rollout-aborted"}


async def test_an_analysis_that_could_not_decide(canary: Region) -> None:
    pause = {"reason": "InconclusiveAnalysisRun", "startTime": canary.cluster.time.now().isoformat()}
    status = {"status": {"pauseConditions": [pause], "controllerPause": True}}
    canary.at_last.append(lambda: canary.cluster.patch(ROLLOUTS, NAME, status, subresource="status"))
    assert await canary.found() == {"paused-inconclusive"}


async def test_a_canary_that_was_forgotten(canary: Region) -> None:
    canary.wait(4 * 86400)
    (found,) = await canary.examined()
    assert (found.code, "step 3/8" in found.what) == ("paused-for-long", True)


async def test_a_spec_that_the_controller_refuses(region: Region) -> None:
    region.refused("MaxSurge and MaxUnavailable both can not be zero")
    assert await region.found() == {"rollout-invalid"}


async def test_all_engines_that_are_down(region: Region) -> None:
    region.simulation.crash("7")
    region.wait(120)
    assert {"nothing-serves", "pod-crashes"} <= await region.found()


async def test_a_pipeline_that_has_not_run_for_months(region: Region) -> None:
    region.last_delivery = region.cluster.time.now() - timedelta(days=120)
    (found,) = await region.examined()
    assert (found.code, "120 d" in found.what) == ("pipeline-idle", True)
