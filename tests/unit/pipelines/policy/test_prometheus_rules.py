"""Which credentials of the machine a spec may send to a Prometheus, and how."""

from __future__ import annotations

import pytest

from pipelines.spec.delivery import Delivery
from pipelines.spec.policy import not_for_a_spec
from pipelines.spec.trust import SpecTrust
from tidegate.core.spec import SpecError, parse_spec

SPEC = """
apiVersion: tidegate/v1
kind: Delivery
metadata: {name: m}
model: {name: m}
engine: {vllm: {version: 0.32.0}}
gates: {latency: {}, errors: {}}
stages: [{canary: {}}]
regions: {waves: [[eu]]}
fleet:
  kind: argo
  namespace: serving
  gateway: {name: users, hosts: [users.example]}
  regions:
    eu: {entry: https://e.example, stable_url: https://s.example, canary_url: https://c.example, prometheus: PROMETHEUS}
"""


def refusals(prometheus: str, **trust: object) -> list[str]:
    allowed = SpecTrust.model_validate(trust)
    text = SPEC.replace("PROMETHEUS", prometheus)
    try:
        parse_spec(text, Delivery, file="d.yaml", also=lambda spec: not_for_a_spec(spec, allowed))
    except SpecError as error:
        return [str(problem).partition("prometheus.")[2] for problem in error.problems]
    return []


def token(source: str, url: str = "https://p.example") -> str:
    return f"{{url: '{url}', auth: {{bearer: {source}}}}}"


def test_a_spec_sends_no_variable_of_the_machine_anywhere() -> None:
    (line,) = refusals(token("{env: AWS_SECRET_ACCESS_KEY}"))
    assert line.startswith("auth.bearer.env: found a variable that specs may not read; expected")
    assert refusals(token("{env: AWS_SECRET_ACCESS_KEY}"), variables=["AWS_SECRET_ACCESS_KEY"]) == []
    assert refusals(token("{env: TIDEGATE_SPEC_TOKEN}")) == []


def test_a_spec_sends_no_file_of_the_machine_anywhere() -> None:
    (line,) = refusals(token("{file: /root/.ssh/id_ed25519}"))
    assert line.startswith("auth.bearer.file: found a file that specs may not name; expected a file below /run/secrets")
    assert refusals(token("{file: /srv/prometheus/token}"), files=["/srv/prometheus"]) == []
    assert refusals(token("{file: /srv/prometheus-other/token}"), files=["/srv/prometheus"]) != []
    assert refusals(token("{file: /run/secrets/tidegate/token}")) == []


def test_an_authority_is_no_secret() -> None:
    assert refusals("{url: 'https://p.example', ca: {file: /etc/ssl/corporate.pem}}") == []


@pytest.mark.parametrize("url", ["http://p.example:9090", "http://10.0.0.7"])
def test_credentials_do_not_go_over_a_plain_connection(url: str) -> None:
    (line,) = refusals(token("{env: TIDEGATE_SPEC_TOKEN}", url))
    host = url.removeprefix("http://")
    assert line == f"url: found {url}; expected https, or {host} under `spec.endpoints` of trust.yaml"
    assert refusals(token("{env: TIDEGATE_SPEC_TOKEN}", url), endpoints=[host]) == []
    assert refusals(f"'{url}'") == []


def test_within_the_cluster_they_may() -> None:
    assert refusals(token("{env: TIDEGATE_SPEC_TOKEN}", "http://mimir.monitoring.svc:8080")) == []


def test_those_of_argo_rollouts_are_held_to_the_same() -> None:
    secret = "{secret: {name: prometheus, key: token}}"
    inside = f"{{url: 'http://p.example', auth: {{bearer: {secret}}}}}"
    (line,) = refusals(f"{{url: 'https://p.example', rollouts: {inside}}}")
    assert line.startswith("rollouts.url: found http://p.example; expected https")
