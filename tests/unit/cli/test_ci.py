"""Where reports for CI go: as options say, else as the CI system's variables do."""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree

import pytest
from fakes.delivery.records import delivered

from pipelines.events.state import DeliveryState, state_of
from tidegate.cli import main
from tidegate.cli.ci import JUNIT, SUMMARY, Reports, errors_told, reports_wanted
from tidegate.core.errors import Refused

HERE, PAGE = Path("here.md"), "/page/of/the/job"


@pytest.mark.parametrize(
    ("environment", "summary", "shared"),
    [
        ({}, None, False),
        ({"GITHUB_STEP_SUMMARY": PAGE}, Path(PAGE), True),
        ({"GITLAB_CI": "true"}, SUMMARY, False),
    ],
)
def test_with_ci_the_variables_decide(environment: dict[str, str], summary: Path | None, *, shared: bool) -> None:
    assert reports_wanted(ci=True, files=None, environment=environment) == Reports(JUNIT, summary, shared=shared)


@pytest.mark.parametrize("environment", [{}, {"GITHUB_STEP_SUMMARY": PAGE}, {"GITLAB_CI": "true"}])
def test_an_option_comes_before_a_variable(environment: dict[str, str]) -> None:
    wanted = reports_wanted(ci=True, files=[Path("a.xml"), HERE], environment=environment)
    assert wanted == Reports(Path("a.xml"), HERE)


def test_without_ci_nothing_is_written_that_nobody_asked_for() -> None:
    environment = {"GITHUB_STEP_SUMMARY": PAGE, "GITLAB_CI": "true"}
    assert reports_wanted(ci=False, files=None, environment=environment) == Reports()
    wanted = reports_wanted(ci=False, files=[HERE], environment=environment)
    assert wanted == Reports(summary=HERE)


def test_a_page_that_others_write_to_is_continued(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# tests\n\n")
    Reports(summary=page, shared=True).tell(state_of(delivered()), "0f3c")
    assert page.read_text().startswith("# tests\n\n### support-llm 2 is in production\n")
    Reports(summary=page).tell(state_of(delivered()), "0f3c")
    assert page.read_text().startswith("### support-llm 2")


def test_an_error_is_told_and_goes_on(tmp_path: Path) -> None:
    target = tmp_path / "reports" / "junit.xml"
    wanted = reports_wanted(ci=False, files=[target])
    with pytest.raises(Refused, match="another delivery"), errors_told(wanted):
        raise Refused("another delivery runs")
    case = next(ElementTree.parse(target).getroot().iter("testcase"))
    assert [(mark.tag, mark.get("message")) for mark in case] == [("error", "another delivery runs")]


def test_a_report_that_cannot_be_written_changes_no_ending(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Reports(junit=tmp_path).tell(DeliveryState(), "")
    assert caplog.messages[0].startswith("a report could not be written: ")


def test_a_report_may_go_to_what_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gates.yaml").write_text("kind: Gates\napiVersion: tidegate/v1\ngates: {errors: {max_increase: 0.5pp}}")
    (tmp_path / "evidence.jsonl").touch()
    os.mkfifo(tmp_path / "pipe.md")
    reader = os.open(tmp_path / "pipe.md", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert main(["gate", "check", "gates.yaml", "evidence.jsonl", "--report", "pipe.md"]) == 3
        assert os.read(reader, 1 << 16).startswith(b"### gates: inconclusive")
    finally:
        os.close(reader)
    assert (tmp_path / "pipe.md").is_fifo()
