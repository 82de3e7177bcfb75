"""A spec is code: variables, plugins and addresses are its author's to name only as far as the operator lets him."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pipelines.spec.delivery import Delivery
from pipelines.spec.policy import not_for_a_spec
from pipelines.spec.trust import SpecTrust, Trust
from tidegate.core.spec import SpecError, parse_spec

SPEC = """
apiVersion: tidegate/v1
kind: Delivery
metadata: {name: m}
model: {name: m}
engine: {vllm: {version: 0.32.0, args: {ARGS}}}
gates: {latency: {}, errors: {}JUDGE}
stages: [{canary: {}}]
regions: {waves: [[eu]]}
traffic: {requests_per_second: 2}
"""


def spec_of(*, args: str = "", judge: str = "", more: str = "") -> str:
    judged = f", judge: {{model: j, {judge}}}" if judge else ""
    return SPEC.replace("ARGS", args).replace("JUDGE", judged) + more


def refusals(text: str, **trust: object) -> list[str]:
    allowed = SpecTrust.model_validate(trust)
    try:
        parse_spec(text, Delivery, file="d.yaml", also=lambda spec: not_for_a_spec(spec, allowed))
    except SpecError as error:
        return [str(problem) for problem in error.problems]
    return []


def judged(endpoint: str, key: str = "") -> str:
    return spec_of(judge=f"endpoint: '{endpoint}'" + (f", api_key_env: {key}" if key else ""))


def test_a_spec_reads_no_variable_of_the_machine() -> None:
    (line,) = refusals(judged("https://evil.example/v1", "AWS_SECRET_ACCESS_KEY"))
    assert line == (
        "d.yaml:7: gates.judge.api_key_env: found a variable that specs may not read; expected a name that begins with"
        " TIDEGATE_SPEC_, or that name under `spec.variables` of trust.yaml"
    )
    (line,) = refusals(spec_of(more="notify: [{slack: {url_from_env: AWS_TOKEN}}]\n"))
    assert "notify[0].slack.url_from_env: found a variable that specs may not read; expected a name that begins" in line


def test_it_reads_ours_and_those_that_the_operator_lists() -> None:
    assert refusals(judged("https://judge.example/v1", "TIDEGATE_SPEC_JUDGE_KEY")) == []
    assert refusals(judged("https://judge.example/v1", "JUDGE_KEY"), variables=["JUDGE_KEY"]) == []


@pytest.mark.parametrize("own", ["TIDEGATE_OIDC_TOKEN", "TIDEGATE_WEIGHTS_TOKEN", "TIDEGATE_WEBHOOK_SECRET"])
def test_a_secret_of_tidegate_itself_is_nobodys_to_name(own: str) -> None:
    assert len(refusals(judged("https://judge.example/v1", own), variables=[own])) == 1
    with pytest.raises(
        SpecError, match=rf"t.yaml:1: spec.variables\[0\]: found {own}; expected no variable of tidegate"
    ):
        parse_spec(f"spec: {{variables: [{own}]}}", Trust, file="t.yaml")


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://127.0.0.1:8000/v1",
        "http://localhost/v1",
        "http://[::1]:80/v1",
        "http://judge.ml.svc/v1",
        "https://j.example/v1",
    ],
)
def test_a_judge_may_be_near_or_behind_tls(endpoint: str) -> None:
    assert refusals(judged(endpoint)) == []


def test_a_judge_elsewhere_without_tls_needs_the_operator() -> None:
    (line,) = refusals(judged("http://judge.example:81/v1"))
    assert line.endswith("expected https, or judge.example:81 under `spec.endpoints` of trust.yaml")
    assert refusals(judged("http://judge.example:81/v1"), endpoints=["judge.example:81"]) == []


@pytest.mark.parametrize(
    "address",
    ["169.254.169.254", "2852039166", "0xA9FEA9FE", "[fe80::1]", "metadata.google.internal."],
)
def test_nobody_is_asked_where_clouds_hand_out_credentials(address: str) -> None:
    found = refusals(judged(f"https://{address}/v1"), endpoints=[address])
    assert any("no link-local address" in line for line in found)


@pytest.mark.parametrize(
    ("args", "allowed", "where"),
    [
        ("middleware: evil.Backdoor", {"middleware": ["evil.Backdoor"]}, "middleware"),
        ("tool-parser-plugin: /tmp/x.py", {"tool-parser-plugin": ["/tmp/x.py"]}, "tool-parser-plugin"),
        ("worker-cls: evil.Worker", {"worker-cls": ["evil.Worker"]}, "worker-cls"),
        ("allowed-local-media-path: /", {"allowed-local-media-path": ["/"]}, "allowed-local-media-path"),
        (
            "otlp-traces-endpoint: 'http://evil'",
            {"otlp-traces-endpoint": ["http://evil"]},
            "otlp-traces-endpoint",
        ),
        (
            "speculative-config: {method: draft_model, model: acme/draft, num_speculative_tokens: 2}",
            {"speculative-config.model": ["acme/draft"], "speculative-config.method": ["draft_model"]},
            "speculative-config.model",
        ),
        (
            "spec-method: custom_class, spec-model: evil.module.Proposer, spec-tokens: 1",
            {"spec-method": ["custom_class"], "spec-model": ["evil.module.Proposer"], "spec-tokens": ["1"]},
            "spec-model",
        ),
        ("tool-server: 'attacker.example:443'", {"tool-server": ["attacker.example:443"]}, "tool-server"),
        ("data-parallel-address: 10.0.0.1", {"data-parallel-address": ["10.0.0.1"]}, "data-parallel-address"),
        (
            "mm-encoder-fp8-scale-save-path: /x",
            {"mm-encoder-fp8-scale-save-path": ["/x"]},
            "mm-encoder-fp8-scale-save-path",
        ),
    ],
)
def test_what_is_not_known_to_be_harmless_needs_the_operator(
    args: str, allowed: Mapping[str, object], where: str
) -> None:
    found = [line for line in refusals(spec_of(args=args)) if "trust.yaml" in line]
    assert len(found) == len(allowed)
    (line,) = [line for line in found if f"d.yaml:6: engine.vllm.args.{where}: found" in line]
    assert f"`spec.plugins.{where}` of trust.yaml" in line
    assert refusals(spec_of(args=args), plugins=allowed) == []
