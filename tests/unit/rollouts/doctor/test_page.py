"""docs/reference/doctor.md has every finding, in the doctor's own words, and every code that another page names."""

from __future__ import annotations

import re
from pathlib import Path

from rollouts.doctor.diagnosis import CHECKS

DOCS = Path(__file__).parents[4] / "docs"
PAGE = (DOCS / "reference/doctor.md").read_text(encoding="utf-8")


def test_the_page_has_every_check_and_nothing_else() -> None:
    rows = [f"| `{each.code}` | {each.severity} | {each.cause} | {each.remediation} |" for each in CHECKS]
    told = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert told[: len(rows)] == rows
    assert [line.split("`")[1] for line in told[len(rows) :]] == ["git"]


def test_pages_name_codes_that_exist() -> None:
    codes = {check.code for check in CHECKS} | {"git"}
    named = {
        code
        for page in DOCS.rglob("*.md")
        for line in page.read_text(encoding="utf-8").splitlines()
        for listed in re.findall(r"`doctor`: ((?:`[a-z-]+`(?:, )?)+)", line)
        for code in re.findall(r"`([a-z-]+)`", listed)
    }
    assert named
    assert named - codes == set()
