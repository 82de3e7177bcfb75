"""`tidegate slo export`: what it writes, what it leaves alone, and what it refuses in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidegate.cli import main

SPEC = """\
apiVersion: tidegate/v1
kind: Delivery
metadata: {name: support-llm}
model: {name: support-llm}
engine: {vllm: {version: 0.32.0}, accelerator: cpu}
gates: {errors: {max_increase: 1pp}}
stages: [{canary: {weights: [50], within: WITHIN, gates: [errors]}}]
regions: {waves: [[eu-west-1]]}
SLOS
"""
SLOS = """\
slos:
  - {name: availability, objective: 99.9, errors: {}}
  - {name: kv-cache, objective: 95, kv_cache: {below: 90%}}
"""


def spec(folder: Path, slos: str = SLOS, within: str = "30m") -> str:
    path = folder / "delivery.yaml"
    path.write_text(SPEC.replace("SLOS", slos).replace("WITHIN", within))
    return str(path)


def export(path: str, target: Path, *more: str) -> int:
    return main(["slo", "export", path, str(target), *more])


def states(out: str) -> dict[str, str]:
    return {Path(line["file"]).name: line["state"] for line in json.loads(out)}


def test_files_are_written_once_and_then_only_when_they_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "a" / "slo"
    assert export(spec(tmp_path), target, "--output", "json") == 0
    first = states(capsys.readouterr().out)
    assert set(first.values()) == {"new"}
    times = {path: path.stat().st_mtime_ns for path in target.rglob("*.*")}
    assert {path.name for path in times if path.is_file()} == set(first)

    assert export(spec(tmp_path), target, "--output", "json") == 0
    assert set(states(capsys.readouterr().out).values()) == {"unchanged"}
    assert times == {path: path.stat().st_mtime_ns for path in target.rglob("*.*")}

    assert export(spec(tmp_path), target, "--prometheus", "https://prometheus.example.com", "--output", "json") == 0
    changed = states(capsys.readouterr().out)
    assert {name for name, state in changed.items() if state == "changed"} == {"analysis-templates.yaml"}


def test_what_is_left_out_is_told_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(spec(tmp_path, within="4m"), tmp_path / "slo") == 0
    said = capsys.readouterr()
    file = tmp_path / "slo/analysis-templates.yaml"
    assert f"{file}: new; 2 AnalysisTemplate objects\n" in said.out
    assert said.err == f"not in {file}: support-llm-kv-cache: 4m is too short for 5 looks, one every 1m\n"


def test_files_of_others_are_neither_deleted_nor_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "slo"
    target.mkdir()
    (target / "notes.txt").write_text("mine")
    assert export(spec(tmp_path), target) == 0
    (target / "rules.yaml").write_text("groups: []\n")
    before = {path: path.read_bytes() for path in target.rglob("*.*") if path.is_file()}
    assert export(spec(tmp_path), target, "--namespace", "serving") == 2
    assert f"{target / 'rules.yaml'} was not written by tidegate" in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in target.rglob("*.*") if path.is_file()}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--prometheus", "prometheus:9090"], "--prometheus: found 'prometheus:9090'; expected an address"),
        (["--namespace", "My_Space"], "--namespace: found 'My_Space'; expected a name"),
        (["-l", "release"], "--label: found 'release'; expected key=value"),
        (["-l", "a/b/c=d"], "--label: found 'a/b/c=d'; expected key=value"),
    ],
)
def test_a_wrong_option_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], why: str
) -> None:
    assert export(spec(tmp_path), tmp_path / "slo", *more) == 2
    said = capsys.readouterr().err
    assert why in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "slo").exists()


def test_a_delivery_without_promises_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(spec(tmp_path, slos=""), tmp_path / "slo") == 2
    assert "has no `slos`; add objectives under `slos`" in capsys.readouterr().err


def test_a_file_is_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "slo").write_text("")
    assert export(spec(tmp_path), tmp_path / "slo") == 2
    assert "is no folder" in capsys.readouterr().err
