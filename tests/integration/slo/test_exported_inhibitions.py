"""A real Alertmanager with the exported configuration: which alerts keep which others quiet."""

from __future__ import annotations

import json
import shutil
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.services.sockets import free_address, running

pytestmark = pytest.mark.skipif(shutil.which("prometheus-alertmanager") is None, reason="needs Alertmanager")

PATIENCE_SECONDS = 30.0
CONFIG = Path(__file__).parents[3] / "examples/slo/exported/alertmanager.yaml"


def alert(name: str, region: str, **labels: str) -> dict[str, str]:
    return {"alertname": name, "region": region, **labels}


def burn(severity: str, slo: str, region: str, service: str = "support-llm") -> dict[str, str]:
    return alert(
        f"{slo}-{severity}",
        region,
        sloth_service=service,
        sloth_slo=slo,
        sloth_id=f"{service}-{slo}",
        sloth_severity=severity,
    )


def slow_canary(region: str, service: str = "support-llm") -> dict[str, str]:
    return alert("CanarySlow", region, role="canary", service=service)


FIRING = [
    burn("page", "availability", "eu-west-1"),
    burn("ticket", "availability", "eu-west-1"),
    burn("ticket", "availability", "us-east-1"),
    burn("ticket", "queue", "eu-west-1"),
    burn("ticket", "availability", "eu-west-1", "another-llm"),
    slow_canary("eu-west-1"),
    slow_canary("us-east-1"),
    slow_canary("eu-west-1", "another-llm"),
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("alertmanager")
    address = free_address()
    command = [
        "prometheus-alertmanager",
        f"--config.file={CONFIG}",
        f"--storage.path={home}",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
    ]
    with running(command, ready=f"http://{address}/-/ready", log=home / "log"):
        yield f"http://{address}/api/v2/alerts"


def quieted(url: str) -> list[dict[str, str]]:
    """The alerts that others keep quiet."""
    with urllib.request.urlopen(url, timeout=60) as answer:
        alerts = json.load(answer)
    assert len(alerts) == len(FIRING)
    return sorted((each["labels"] for each in alerts if each["status"]["inhibitedBy"]), key=str)


def test_a_page_quiets_its_ticket_and_a_region_that_is_down_its_canary_and_nobody_elses(url: str) -> None:
    body = json.dumps([{"labels": labels} for labels in FIRING]).encode()
    urllib.request.urlopen(urllib.request.Request(url, body, {"content-type": "application/json"}), timeout=60).close()
    # Alertmanager takes alerts at once, and thinks about who quiets whom a moment later.
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not quieted(url) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    assert quieted(url) == sorted([burn("ticket", "availability", "eu-west-1"), slow_canary("eu-west-1")], key=str)
