"""Commands that act on a spec refuse what is not its author's to say, before they read anything that it names."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import patch

import pytest

from pipelines.adapters.specs import read_spec
from tidegate.cli import main
from tidegate.core.spec import SpecError

SPEC = """apiVersion: tidegate/v1
kind: Delivery
metadata: {name: m}
model: {name: m}
engine: {vllm: {version: 0.32.0, args: {middleware: evil.Backdoor}}}
gates: {latency: {}, errors: {}, judge: {endpoint: 'https://evil.example/v1', model: j, api_key_env: JUDGE_KEY}}
stages: [{canary: {}}]
regions: {waves: [[eu]]}
traffic: {requests_per_second: 2, prompts: ../../../../../../../../../proc/self/environ}
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("TIDEGATE_TRUST", "TIDEGATE_ROOT"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "delivery.yaml"
    path.write_text(SPEC)
    return path


TRUST = "spec: {variables: [JUDGE_KEY], plugins: {middleware: [evil.Backdoor]}}\n"
READS_A_SPEC = (
    *("plan", "deliver", "status", "status --last 2", "report", "stage open", "doctor", "serve", "rollout render"),
    *("rollout render --as workflow", "rollback --to 1 --start --yes", "audit verify --all"),
    *("engine build models:/m/1", "fleet up", "slo export {} slo"),
)


@pytest.mark.parametrize("command", READS_A_SPEC)
def test_a_trust_file_that_came_with_the_spec_is_refused_until_it_is_named(
    command: str, spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDEGATE_STATE", str(tmp_path / "state"))
    spec.with_name("trust.yaml").write_text(TRUST)
    words = command.split() if "{}" in command else [*command.split(), "{}"]
    assert main([word.format(spec) for word in words]) == 2
    told = capsys.readouterr().err
    assert f"{spec.with_name('trust.yaml')}: a trust file next to a spec does not count" in told
    assert "name it, or another, by `--trust FILE` or TIDEGATE_TRUST" in told


def test_the_operators_file_allows_by_name(spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec.with_name("trust.yaml").write_text("not: read\n")
    (tmp_path / "operator").mkdir()
    named = tmp_path / "operator/trust.yaml"
    named.write_text(TRUST)
    with patch.dict(os.environ):
        assert main(["plan", str(spec), "--offline", "--trust", str(named)]) == 2
    told = capsys.readouterr().err
    assert "traffic.prompts: found" in told
    assert "middleware" not in told


def test_a_trust_file_that_came_with_a_kept_spec_is_none(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec.with_name("trust.yaml").write_text(TRUST)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError, match=r"evil\.Backdoor"):
        read_spec(spec, kept_below=tmp_path)
    monkeypatch.setenv("TIDEGATE_TRUST", str(spec.with_name("trust.yaml")))
    with pytest.raises(SpecError) as caught:
        read_spec(spec, kept_below=tmp_path)
    assert [problem.path for problem in caught.value.problems] == ["traffic.prompts"]
