"""The exported files, judged by the tools that will read them: promtool, and Alertmanager's amtool."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

EXPORTED = Path(__file__).parents[3] / "examples/slo/exported"
ALERTMANAGER = EXPORTED / "alertmanager.yaml"

needs_amtool = pytest.mark.skipif(shutil.which("amtool") is None, reason="needs Alertmanager")


def told(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Prometheus")
def test_prometheus_accepts_the_rules() -> None:
    assert "SUCCESS" in told("promtool", "check", "rules", EXPORTED / "rules.yaml")


@needs_amtool
def test_alertmanager_accepts_its_configuration() -> None:
    assert "SUCCESS" in told("amtool", "check-config", ALERTMANAGER)


@needs_amtool
@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        (("sloth_service=support-llm", "sloth_severity=page", "sloth_slo=availability", "region=eu-west-1"), "pager"),
        (("sloth_service=support-llm", "sloth_severity=ticket", "sloth_slo=queue", "region=eu-west-1"), "tickets"),
        (("alertname=SomebodyElses",), "tickets"),
    ],
)
def test_a_page_reaches_the_pager_and_all_else_the_queue(labels: tuple[str, ...], receiver: str) -> None:
    asked = ["amtool", "config", "routes", "test", f"--config.file={ALERTMANAGER}", *labels]
    assert told(*asked).strip() == receiver
