"""docs/reference/doctor.md has every finding, in the doctor's own words; every finding has a set-up that shows it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from rollouts.doctor.diagnosis import CHECKS
from rollouts.doctor.model import Check
from tidegate.app.clusters.git import GIT_CHECKS

HERE = Path(__file__).parent
PAGE = (Path(__file__).parents[4] / "docs/reference/doctor.md").read_text(encoding="utf-8")


EVERY_CHECK = (*CHECKS, *GIT_CHECKS)


@pytest.mark.parametrize("check", EVERY_CHECK, ids=lambda check: check.code)
def test_every_finding_is_on_the_page(check: Check) -> None:
    assert f"| `{check.code}` | {check.severity} | {check.cause} | {check.remediation} |" in PAGE


def test_nothing_else_is_on_the_page() -> None:
    codes = [line.split("`")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    assert sorted(codes) == sorted(check.code for check in EVERY_CHECK)


def test_what_people_met_is_told_by_findings_that_exist() -> None:
    table = PAGE.partition("## What people met")[2].partition("## Every finding")[0]
    named = set(re.findall(r"`([a-z-]+)`", table))
    assert named
    assert named - {check.code for check in EVERY_CHECK} == set()


def test_no_two_findings_have_one_code() -> None:
    assert len({check.code for check in EVERY_CHECK}) == len(EVERY_CHECK)


def test_every_finding_is_shown_by_a_set_up() -> None:
    words = {
        node.value
        for path in HERE.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
    }
    assert {check.code for check in CHECKS} - words == set()
