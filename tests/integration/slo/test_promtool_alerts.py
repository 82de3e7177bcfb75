"""Page and ticket, judged by Prometheus itself: both speeds fire at their burn and are silent below it."""

from __future__ import annotations

import shutil
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from slo.model import Alert, EventSli, Slo, SloGroup
from slo.outputs import rule_file
from slo.rules import RuleOptions, identity, rules_for, selector, sli_error
from slo.windows import AlertWindow, windows_for
from tidegate.core.units import prometheus_duration

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Prometheus")

SLO = Slo(
    service="support-llm",
    name="availability",
    objective=99,
    sli=EventSli(
        error_query='sum(rate(requests_total{code=~"5.."}[{{.window}}]))',
        total_query="sum(rate(requests_total[{{.window}}]))",
    ),
    page=Alert(name="SupportDown", labels={"to": "on-call"}),
    ticket=Alert(name="SupportSlips", annotations={"summary": "have a look"}),
)
GROUP = SloGroup(slos=(SLO,), mode="cli-gen-prom", spec="prometheus/v1")
WINDOWS = windows_for(timedelta(days=30))
NAMES = {"page": "SupportDown", "ticket": "SupportSlips"}
SPEEDS = {"page": WINDOWS.page, "ticket": WINDOWS.ticket}

Test = dict[str, object]


def fired(severity: str) -> Test:
    """The alert as it reaches Alertmanager, to the last letter."""
    subject = "support-llm availability SLO error budget burn rate is"
    summary = {"page": f"{subject} over expected.", "ticket": "have a look"}[severity]
    own = {"page": {"to": "on-call"}, "ticket": {}}[severity]
    return {
        "exp_labels": {**identity(SLO), "sloth_severity": severity, **own},
        "exp_annotations": {"title": f"({severity}) {subject} too fast.", "summary": summary},
    }


def asks(at: str, **firing: bool) -> list[Test]:
    return [
        {"eval_time": at, "alertname": NAMES[severity], "exp_alerts": [fired(severity)] if fires else []}
        for severity, fires in firing.items()
    ]


def recorded(shares: dict[timedelta, float]) -> list[Test]:
    """Recorded shares of bad events; those of the other windows are none."""
    return [
        {
            "series": f"{sli_error(length)}{selector({**identity(SLO), 'sloth_window': prometheus_duration(length)})}",
            "values": f"{shares.get(length, 0)}x10",
        }
        for length in WINDOWS.lengths
    ]


def on_each_pair() -> list[Test]:
    """Above in both windows fires this alert and no other; below in either one, none."""
    found: list[Test] = []
    for severity, speeds in SPEEDS.items():
        for speed in ("quick", "slow"):
            pair: AlertWindow = getattr(speeds, speed)
            above, below = (pair.factor * SLO.error_budget * share for share in (1.01, 0.99))
            for short, long in ((above, above), (below, above), (above, below), (below, below)):
                fires = short == long == above
                found.append(
                    {
                        "name": f"{severity} {speed}: {short:.4f} and {long:.4f}",
                        "interval": "1m",
                        "input_series": recorded({pair.short: short, pair.long: long}),
                        "alert_rule_test": [
                            test for one in SPEEDS for test in asks("5m", **{one: fires and one == severity})
                        ],
                    }
                )
    return found


def traffic(name: str, share: float, *, healthy: int, bad: int, firing: dict[str, bool]) -> Test:
    """Sixty requests a minute; for so many minutes all good, then with a share of bad ones."""
    errors = 60 * share
    good_then_bad = f"0+60x{healthy} {60 * healthy + 60 - errors}+{60 - errors}x{bad - 1}"
    return {
        "name": name,
        "interval": "1m",
        "input_series": [
            {"series": 'requests_total{code="200"}', "values": good_then_bad},
            {"series": 'requests_total{code="500"}', "values": f"0+0x{healthy} {errors}+{errors}x{bad - 1}"},
        ],
        "alert_rule_test": asks(f"{healthy + bad}m", **firing),
    }


def on_traffic() -> list[Test]:
    """From counters to alerts, through every recording rule between them."""
    neither, both = {"page": False, "ticket": False}, {"page": True, "ticket": True}
    ticket = {"page": False, "ticket": True}
    return [
        traffic("an hour above the quick page", 0.16, healthy=360, bad=60, firing=both),
        traffic("five minutes of it are too few", 0.16, healthy=360, bad=5, firing=neither),
        traffic("above the slow page", 0.066, healthy=0, bad=400, firing=both),
        traffic("below the slow page", 0.054, healthy=0, bad=400, firing=ticket),
        traffic("above the slow ticket", 0.011, healthy=0, bad=400, firing=ticket),
        traffic("below the slow ticket", 0.009, healthy=0, bad=400, firing=neither),
    ]


def judged(folder: Path, options: RuleOptions, tests: list[Test], every: str) -> subprocess.CompletedProcess[str]:
    (folder / "rules.yaml").write_text(rule_file(rules_for(GROUP, WINDOWS, options)))
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": every, "tests": tests}
    (folder / "tests.yaml").write_text(yaml.safe_dump(document))
    return subprocess.run(
        ["promtool", "test", "rules", "tests.yaml"], cwd=folder, capture_output=True, text=True, check=False
    )


def test_each_speed_fires_when_both_of_its_windows_burn(tmp_path: Path) -> None:
    run = judged(tmp_path, RuleOptions(disable_recordings=True), on_each_pair(), "1m")
    assert run.returncode == 0, run.stdout + run.stderr


def test_from_requests_to_alerts(tmp_path: Path) -> None:
    run = judged(tmp_path, RuleOptions(), on_traffic(), "5m")
    assert run.returncode == 0, run.stdout + run.stderr


def test_promtool_would_have_said_so(tmp_path: Path) -> None:
    """A test that cannot fail shows nothing: the same traffic with the opposite expected."""
    wrong = traffic("above the slow page", 0.066, healthy=0, bad=400, firing={"page": False})
    assert judged(tmp_path, RuleOptions(), [wrong], "5m").returncode != 0
