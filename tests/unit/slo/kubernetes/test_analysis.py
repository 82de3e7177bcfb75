from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from fakes.metrics.queries import outcome

from slo.kubernetes.analysis import (
    BY_HASH,
    BY_VERSION,
    NEVER,
    SHORTEST,
    analysis_template,
    arm_of,
    paging_pairs,
)
from slo.model import EventSli, KubernetesNames, RawSli, Slo
from slo.promql import of_arm
from tidegate.core.access import PrometheusEndpoint
from tidegate.core.errors import UsageError

ERRORS = EventSli(
    error_query='sum(rate(http_requests_total{status="5xx"}[{{.window}}]))',
    total_query="sum(rate(http_requests_total[{{.window}}]))",
)
SLO = Slo(service="support-llm", name="availability", objective=99.9, sli=ERRORS)
PROMETHEUS = PrometheusEndpoint(url="http://prometheus.monitoring:9090")
STAGE = timedelta(minutes=30)


def template(
    slo: Slo = SLO, *, stage: timedelta = STAGE, background: bool = False, at: PrometheusEndpoint = PROMETHEUS
) -> dict[str, Any]:
    names = KubernetesNames(name=slo.id)
    return analysis_template(slo, stage=stage, background=background, names=names, prometheus=at)


def metrics_of(slo: Slo = SLO, **said: Any) -> list[dict[str, Any]]:
    metrics: list[dict[str, Any]] = template(slo, **said)["spec"]["metrics"]
    return metrics


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ([], "Inconclusive"),
        ([math.nan], "Inconclusive"),
        ([0.0], "Successful"),
        ([14.4], "Successful"),
        ([14.5], "Failed"),
        ([1000.0, 0.0], "Inconclusive"),
    ],
    ids=["nothing or too few events", "NaN", "healthy", "at the factor", "both windows burn", "several series"],
)
def test_a_result_means_one_thing(result: list[float], said: str) -> None:
    assert outcome(metrics_of()[0], result) == said


def test_conditions_never_index_the_result() -> None:
    for metric in metrics_of():
        assert "result[" not in metric["failureCondition"] + metric["successCondition"]


def test_a_stage_is_asked_a_number_of_times_and_a_background_run_without_end() -> None:
    stage = metrics_of(stage=timedelta(minutes=10))[0]
    assert (stage["count"], stage["inconclusiveLimit"], stage["failureLimit"]) == (10, 5, 0)
    background = metrics_of(stage=timedelta(minutes=10), background=True)[0]
    assert "count" not in background
    assert background["inconclusiveLimit"] == NEVER


def test_windows_shrink_with_the_stage_but_not_below_what_a_rate_needs() -> None:
    fast, slow = paging_pairs(timedelta(days=30), STAGE)
    assert (slow.long, slow.short) == (timedelta(minutes=30), timedelta(seconds=150))
    assert (fast.long, fast.short) == (timedelta(minutes=5), SHORTEST)
    assert [fast.factor, slow.factor] == [14.4, 6]


def test_every_selector_is_narrowed_and_rates_become_counts() -> None:
    query = "sum(rate(a[{{.window}}] offset 5m)) / sum(b)"
    assert of_arm(query, window="1m", arm={"r": "x"}) == 'sum(rate(a{r="x"}[1m] offset 5m)) / sum(b{r="x"})'
    counted = of_arm(query, window="1m", arm={"r": "x"}, counted=True)
    assert counted == 'sum(increase(a{r="x"}[1m] offset 5m)) / sum(b{r="x"})'


@pytest.mark.parametrize(
    "query",
    [r"sum(rate(a{path=~`/v1/[^/]+\.bin`}[{{.window}}]))", r'sum(rate(a{path=~"/v1/[^/]+\\.bin"}[{{.window}}]))'],
)
def test_a_query_with_escapes_is_narrowed_to_the_same_series(query: str) -> None:
    assert of_arm(query, window="5m", arm={"role": "canary"}) == (
        r'sum(rate(a{path=~"/v1/[^/]+\\.bin",role="canary"}[5m]))'
    )


def test_a_pair_that_could_never_fire_is_left_out() -> None:
    assert [m["name"] for m in metrics_of(slo=SLO.model_copy(update={"objective": 90.0}))] == ["availability-slow-burn"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"objective": 80.0}, "never burns fast enough to be judged: 5 times at most"),
        ({"objective": 100.0}, "no error budget"),
        ({"sli": RawSli(error_ratio_query="x")}, "is a share, not bad events over all"),
        ({"sli": EventSli(error_query="sum(", total_query="sum(x)")}, "support-llm-availability"),
    ],
)
def test_what_cannot_be_judged_is_refused(change: dict[str, object], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        template(slo=SLO.model_copy(update=change))


def test_alerts_over_a_shorter_period_page_at_a_slower_burn_and_so_do_templates() -> None:
    monthly = metrics_of(slo=SLO.model_copy(update={"window": timedelta(days=28)}))
    assert [metric["failureCondition"].split("# ")[1] for metric in monthly] == ["> 13.44})", "> 5.6})"]


def test_an_arm_is_known_by_its_pods_hash_where_pods_counted_and_else_by_its_version() -> None:
    assert arm_of(ERRORS) == BY_HASH
    counted_by_proxy = ERRORS.model_copy(update={"error_query": "sum(rate(envoy_cluster_upstream_rq[{{.window}}]))"})
    assert arm_of(counted_by_proxy) == BY_VERSION
    arguments = template(slo=SLO.model_copy(update={"sli": counted_by_proxy}))["spec"]["args"]
    assert [argument["name"] for argument in arguments if "value" not in argument] == ["region", "version"]


URL = "https://mimir.example.com/prometheus"
SECRET = {"name": "prometheus", "key": "token"}


def asked_at(**said: Any) -> tuple[list[Any], dict[str, Any]]:
    """The arguments, and how the first metric asks."""
    spec = template(at=PrometheusEndpoint.model_validate({"url": URL, **said}))["spec"]
    return spec["args"], spec["metrics"][0]["provider"]["prometheus"]


def test_without_a_secret_the_address_is_an_argument() -> None:
    args, asked = asked_at(tenant="team-a")
    assert {"name": "prometheus", "value": URL} in args
    assert asked["address"] == "{{args.prometheus}}"
    assert asked["headers"] == [{"key": "X-Scope-OrgID", "value": "team-a"}]


PASSWORD = {"username": "me", "password": {"env": "TIDEGATE_SPEC_PASSWORD"}, "header": SECRET}


@pytest.mark.parametrize(
    ("auth", "begins"),
    [({"bearer": {"env": "TIDEGATE_SPEC_TOKEN", "secret": SECRET}}, "Bearer "), ({"basic": PASSWORD}, "")],
)
def test_a_secret_goes_to_the_address_that_stands_in_the_template(auth: dict[str, Any], begins: str) -> None:
    args, asked = asked_at(auth=auth)
    assert {"name": "prometheus-authorization", "valueFrom": {"secretKeyRef": SECRET}} in args
    assert "prometheus" not in [each["name"] for each in args]
    assert asked["address"] == URL
    assert asked["headers"] == [{"key": "Authorization", "value": f"{begins}{{{{args.prometheus-authorization}}}}"}]


def test_amazons_signature_is_the_controllers_own() -> None:
    role = "arn:aws:iam::123456789012:role/argo"
    _, asked = asked_at(auth={"sigv4": {"region": "eu-west-1", "role": role}})
    assert asked["authentication"] == {"sigv4": {"region": "eu-west-1", "roleArn": role}}


@pytest.mark.parametrize(
    ("auth", "told"),
    [
        ({"bearer": {"env": "TIDEGATE_SPEC_TOKEN"}}, "no Secret for Argo Rollouts; give `secret` too"),
        ({"certificate": {"certificate": {"env": "A"}, "key": {"env": "B"}}}, "which Argo Rollouts cannot show"),
    ],
)
def test_what_argo_rollouts_cannot_say_is_an_error(auth: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        asked_at(auth=auth)
