"""What is wrong with several regions for one reason is told once."""

from __future__ import annotations

from pipelines.doctor import RegionCheck
from rollouts.doctor.model import Finding, Severity
from tidegate.cli.project import findings_lines

FINDING = Finding(
    code="clock-skew", severity=Severity.WARNING, what="the clock is ahead", evidence=("39 s",), cause="c",
    remediation="set it",
)  # fmt: skip
AWAY = "https://10.0.0.1:6443 cannot be reached"


def test_regions_that_are_away_for_one_reason_stand_in_one_line_after_the_others() -> None:
    lines = list(
        findings_lines(
            {
                "a": RegionCheck(problem=AWAY),
                "b": RegionCheck(findings=(FINDING,)),
                "c": RegionCheck(problem=AWAY),
                "d": RegionCheck(problem="no context d"),
            }
        )
    )
    assert lines[0] == "b: 1 warning"
    assert lines[-2:] == [f"a, c: {AWAY}", "d: no context d"]
    assert "".join(lines).count(AWAY) == 1
