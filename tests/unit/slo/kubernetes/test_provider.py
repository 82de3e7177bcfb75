"""How analyses of Argo Rollouts say to Prometheus who asks, and that no secret stands in a template."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from slo.kubernetes.analysis import AnalysisStage, analysis_template
from slo.kubernetes.provider import analysis_provider
from slo.model import EventSli, KubernetesNames, Slo
from slo.windows import windows_for
from tidegate.core.access import PrometheusEndpoint
from tidegate.core.errors import UsageError

URL = "https://mimir.example.com/prometheus"
SECRET = {"name": "prometheus", "key": "token"}


def endpoint(**said: Any) -> PrometheusEndpoint:
    return PrometheusEndpoint.model_validate({"url": URL, **said})


def template(at: PrometheusEndpoint) -> dict[str, Any]:
    sli = EventSli(error_query="sum(rate(bad[{{.window}}]))", total_query="sum(rate(all[{{.window}}]))")
    slo = Slo(service="support-llm", name="errors", objective=99.9, sli=sli)
    names, windows = KubernetesNames(name="x"), windows_for(slo.window)
    made: Any = analysis_template(slo, AnalysisStage(), names=names, prometheus=at, windows=windows)
    return dict(made["spec"])


def test_without_a_secret_the_address_is_an_argument() -> None:
    spec = template(endpoint(tenant="team-a"))
    assert {"name": "prometheus", "value": URL} in spec["args"]
    for metric in spec["metrics"]:
        asked = metric["provider"]["prometheus"]
        assert asked["address"] == "{{args.prometheus}}"
        assert asked["headers"] == [{"key": "X-Scope-OrgID", "value": "team-a"}]


def test_a_secret_goes_to_the_address_that_stands_in_the_template() -> None:
    spec = template(endpoint(auth={"bearer": {"env": "TIDEGATE_SPEC_TOKEN", "secret": SECRET}}))
    assert {"name": "prometheus-authorization", "valueFrom": {"secretKeyRef": SECRET}} in spec["args"]
    assert "prometheus" not in [each["name"] for each in spec["args"]]
    for metric in spec["metrics"]:
        asked = metric["provider"]["prometheus"]
        assert asked["address"] == URL
        assert asked["headers"] == [{"key": "Authorization", "value": "Bearer {{args.prometheus-authorization}}"}]


def test_a_password_comes_as_a_whole_header() -> None:
    password = {"env": "TIDEGATE_SPEC_PASSWORD"}
    made = analysis_provider(endpoint(auth={"basic": {"username": "me", "password": password, "header": SECRET}}))
    assert yaml.safe_load(yaml.safe_dump(made.settings["headers"])) == [
        {"key": "Authorization", "value": "{{args.prometheus-authorization}}"}
    ]


def test_amazons_signature_is_the_controllers_own() -> None:
    role = "arn:aws:iam::123456789012:role/argo"
    made = analysis_provider(endpoint(auth={"sigv4": {"region": "eu-west-1", "role": role}}))
    assert made.settings["authentication"] == {"sigv4": {"region": "eu-west-1", "roleArn": role}}


@pytest.mark.parametrize(
    ("auth", "told"),
    [
        ({"bearer": {"env": "TIDEGATE_SPEC_TOKEN"}}, "no Secret for Argo Rollouts; give `secret` too"),
        ({"certificate": {"certificate": {"env": "A"}, "key": {"env": "B"}}}, "which Argo Rollouts cannot show"),
    ],
)
def test_what_it_cannot_say_is_an_error(auth: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        analysis_provider(endpoint(auth=auth))
