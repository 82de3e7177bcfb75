"""The exported rules and the example of routes, judged by the tools that read them: promtool and amtool."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples/slo"
ALERTMANAGER = EXAMPLES / "alertmanager.yaml"

needs_amtool = pytest.mark.skipif(shutil.which("amtool") is None, reason="needs Alertmanager")


def told(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Prometheus")
def test_prometheus_accepts_the_rules() -> None:
    assert "SUCCESS" in told("promtool", "check", "rules", EXAMPLES / "exported/rules.yaml")


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
    # That reads the whole configuration.
    asked = ["amtool", "config", "routes", "test", f"--config.file={ALERTMANAGER}", *labels]
    assert told(*asked).strip() == receiver
