"""Where the reports for CI go; `golden/cli/gate.console` shows them on GitHub's page, and of what cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.delivery.records import delivered

from pipelines.events.state import state_of
from tidegate.cli.ci import report_delivery


def test_a_page_that_others_write_to_is_continued_and_a_file_of_ours_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("page.md", "tidegate-summary.md"):
        Path(name).write_text("# tests\n\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "page.md")
    report_delivery(state_of(delivered()), "0f3c")
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    report_delivery(state_of(delivered()), "0f3c")
    assert Path("page.md").read_text().startswith("# tests\n\n### support-llm 2 is in production\n")
    assert Path("tidegate-summary.md").read_text().startswith("### support-llm 2 is in production\n")


def test_a_report_that_cannot_be_written_changes_no_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tidegate-junit.xml").mkdir()
    report_delivery(state_of(delivered()), "")
    assert caplog.messages[0].startswith("a report could not be written: ")
