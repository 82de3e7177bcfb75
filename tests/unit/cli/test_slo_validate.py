"""`tidegate slo validate`: whether rules can be made of specs, and every reason why not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidegate.cli import main

SPEC = """\
version: prometheus/v1
service: chat
slos:
  - name: answers
    objective: 99.9
    sli: {raw: {error_ratio_query: "avg_over_time(errors[{{.window}}])"}}
    alerting: {page_alert: {disable: true}, ticket_alert: {disable: true}}
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "slos.yaml"
    path.write_text(SPEC)
    return path


def test_right_specs_are_listed(capsys: pytest.CaptureFixture[str], spec: Path) -> None:
    assert main(["slo", "validate", str(spec.parent)]) == 0
    assert capsys.readouterr() == (f"{spec}: chat-answers\n", "")


def test_a_machine_reads_what_is_right(capsys: pytest.CaptureFixture[str], spec: Path) -> None:
    assert main(["slo", "validate", str(spec), "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "valid": True,
        "files": [{"file": str(spec), "slos": ["chat-answers"]}],
        "problems": [],
    }


def test_every_problem_is_told_with_its_place(capsys: pytest.CaptureFixture[str], spec: Path) -> None:
    spec.write_text(SPEC.replace("99.9", "0").replace("[{{.window}}]", "[5m]"))
    assert main(["slo", "validate", str(spec)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.partition(" found ")[0] for line in err.splitlines()] == [
        f"{spec}:5: slos[0].objective:",
        f"{spec}:6: slos[0].sli.raw.error_ratio_query:",
    ]


def test_a_machine_reads_what_is_wrong(capsys: pytest.CaptureFixture[str], spec: Path) -> None:
    spec.write_text(SPEC.replace("99.9", "0"))
    assert main(["slo", "validate", str(spec), "--output", "json"]) == 2
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert (err, document["valid"], document["files"]) == ("", False, [])
    assert document["problems"] == [
        {
            "file": str(spec),
            "line": 5,
            "path": "slos[0].objective",
            "found": "0",
            "expected": "greater than 0",
        }
    ]


def test_a_file_that_is_not_there_is_one_clear_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["slo", "validate", str(tmp_path / "no.yaml")]) == 2
    assert capsys.readouterr().err == (f"{tmp_path}/no.yaml: found no such file; expected a readable YAML file\n")


def test_windows_of_ones_own_take_the_place_of_ours(capsys: pytest.CaptureFixture[str], spec: Path) -> None:
    folder = spec.parent / "windows"
    folder.mkdir()
    assert main(["slo", "validate", str(spec), "--slo-period-windows-path", str(folder)]) == 2
    assert str(folder) in capsys.readouterr().err
