"""`tidegate gate check`: one judgement for a stage of CI, in the form that CI reads."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from fakes.metrics.samples import Serving, traffic
from fakes.terminal import pipe_in

from tidegate.cli import main

GATES = "apiVersion: tidegate/v1\nkind: Gates\ngates: {latency: {}, errors: {max_increase: 5pp}}\n"


def evidence(looks: int = 60, *, ttft: float = 0.2) -> list[bytes]:
    stable, canary = Serving(per_second=20, failing=0.002), Serving(per_second=5, failing=0.002, ttft=ttft)
    return [batch.model_dump_json().encode() for batch in traffic(canary, stable, looks=looks)]


@pytest.fixture
def gates(tmp_path: Path) -> str:
    path = tmp_path / "gates.yaml"
    path.write_text(GATES)
    return str(path)


def written(folder: Path, lines: list[bytes]) -> str:
    path = folder / "evidence.jsonl"
    path.write_bytes(b"\n".join(lines))
    return str(path)


@pytest.mark.parametrize(
    ("lines", "outcome", "code"),
    [
        (evidence(), "pass", 0),
        (evidence(ttft=0.4), "fail", 1),
        (evidence(2), "inconclusive", 3),
        ([], "inconclusive", 3),
    ],
)
def test_the_exit_code_is_the_worst_gate(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, gates: str, *, lines: list[bytes], outcome: str, code: int
) -> None:
    file = written(tmp_path, lines)
    assert main(["gate", "check", gates, file, "--output", "json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert (document["outcome"], document["batches"]) == (outcome, len(lines))
    assert [verdict["gate"] for verdict in document["verdicts"]] == ["latency", "errors"]


def test_a_report_is_printed_or_written_to_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, gates: str
) -> None:
    target = tmp_path / "reports" / "gate.xml"
    file = written(tmp_path, evidence(ttft=0.4))
    assert main(["gate", "check", gates, file, "-o", "junit", "--report", str(target)]) == 1
    assert capsys.readouterr() == (target.read_text(), f"JUnit XML: {target}\n")
    assert ElementTree.parse(target).getroot().attrib["failures"] == "1"


def test_evidence_may_come_from_stdin(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], gates: str
) -> None:
    pipe_in(monkeypatch, evidence())
    assert main(["gate", "check", gates, "-"]) == 0
    assert capsys.readouterr().out.startswith("gates: pass after 60 batches, 1970-01-01 00:16:50 to 00:26:40 UTC\n")


def test_a_file_with_wrong_lines_is_not_judged_and_every_line_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, gates: str
) -> None:
    good = evidence(4)
    file = written(tmp_path, [good[0], b"{", good[1], good[1], b'{"time": -1}', good[2]])
    assert main(["gate", "check", gates, file]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split(": ")[0] for line in err.splitlines()] == [f"{file}:{at}" for at in (2, 4, 5)]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "the evidence is in a file or in Prometheus; give either EVIDENCE or --prometheus"),
        (["a", "--prometheus", "http://b"], "the evidence is in a file or in Prometheus"),
        (["nowhere.jsonl"], "nowhere.jsonl: found no such file"),
        (["--prometheus", "http://localhost:1"], "--prometheus needs a region and two versions"),
    ],
)
def test_what_cannot_be_asked_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], gates: str, arguments: list[str], problem: str
) -> None:
    assert main(["gate", "check", gates, *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.removeprefix("tidegate: ").startswith(problem)


def test_gates_of_a_delivery_that_need_more_than_evidence_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    main(["init", str(tmp_path)])
    capsys.readouterr()
    main(["gate", "check", str(tmp_path / "delivery.yaml"), written(tmp_path, evidence(1))])
    assert "not asked     quality" in capsys.readouterr().out


def test_ci_gets_plain_lines_and_both_reports(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, gates: str
) -> None:
    page = tmp_path / "page.md"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    assert main(["gate", "check", gates, written(tmp_path, evidence(ttft=0.4)), "--ci"]) == 1
    assert capsys.readouterr().out.startswith("gates: fail after 60 batches")
    assert ElementTree.parse("tidegate-junit.xml").getroot().attrib["failures"] == "1"
    assert page.read_text().startswith("### gates: fail\n")


def test_ci_sees_evidence_that_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, gates: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["gate", "check", gates, "nowhere.jsonl", "--ci"]) == 2
    root = ElementTree.parse("tidegate-junit.xml").getroot()
    assert (root.attrib["tests"], root.attrib["errors"]) == ("1", "1")
    assert "nowhere.jsonl" in capsys.readouterr().err
