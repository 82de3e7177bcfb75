"""`tidegate gate serve` as a process next to a real Prometheus, asked by the script that CI is given."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fakes.services.http import page
from fakes.services.prometheus import prometheus
from fakes.services.sockets import free_address, running

from gates.transcript import read, replay

pytestmark = pytest.mark.skipif(
    any(shutil.which(program) is None for program in ("prometheus", "curl", "jq")), reason="needs Prometheus, curl, jq"
)

SCRIPT = Path(__file__).parents[3] / "examples/gates/ci/verdict.sh"
TIDEGATE = Path(sys.executable).with_name("tidegate")
TOKEN = "0123456789abcdef" * 4
GATES = """
apiVersion: tidegate/v1
kind: Gates
metadata: {name: support-llm}
gates: {budget: {poll_interval: 3s}, errors: {max_increase: 20pp}}
metrics:
  sources:
    - requests: {metric: answers_total, status: code}
      arms: {label: version, stable: "{version}", canary: "{version}"}
"""
PER_SECOND = {"6": 200, "7": 100, "8": 100}
FAILING = {"6": 0.0, "7": 0.0, "8": 0.5}


def exposition(began: float) -> str:
    """What each version has answered since then."""
    seconds = time.time() - began
    lines = ["# TYPE answers_total counter"]
    for version, rate in PER_SECOND.items():
        failed = int(rate * seconds * FAILING[version])
        for code, count in (("200", int(rate * seconds) - failed), ("500", failed)):
            lines.append(f'answers_total{{version="{version}",code="{code}"}} {count}')
    return "\n".join([*lines, ""])


@contextmanager
def serving(folder: Path, url: str, address: str) -> Iterator[None]:
    (folder / "gates.yaml").write_text(GATES)
    (folder / "token").write_text(TOKEN)
    command = [TIDEGATE, "gate", "serve", folder / "gates.yaml", "--prometheus", url, "--state", folder / "state"]
    options = ["--address", address, "--token", folder / "token", "--output", "json"]
    with running([*map(str, command), *map(str, options)], ready=f"http://{address}/healthz", log=folder / "log"):
        yield


def concluded(address: str, canary: str) -> tuple[int, str]:
    """How CI's step ends, and what it says."""
    settings = {"GATE_URL": f"http://{address}", "GATE_TOKEN": TOKEN, "STABLE": "6", "CANARY": canary, "RUN": "1"}
    said = subprocess.run(
        [SCRIPT], env={**os.environ, **settings, "GATE_SECONDS": "240"}, capture_output=True, text=True, check=False
    )
    return said.returncode, said.stdout + said.stderr


def until_scraped(address: str) -> None:
    """Prometheus has just begun: stable is refused until it has been scraped for a window that is settled."""
    question = f"http://{address}/v1/verdict?name=support-llm&stable=6&canary=8&run=0"
    patient = ["curl", "--silent", "--fail", "--retry", "120", "--retry-delay", "1", "--retry-all-errors"]
    subprocess.run([*patient, "--header", f"Authorization: Bearer {TOKEN}", question], check=True, capture_output=True)


@pytest.mark.slow(reason="what Prometheus has is settled ten seconds later")
def test_ci_waits_for_a_verdict_that_survives_a_restart(tmp_path: Path) -> None:
    began = time.time()
    with page(lambda: exposition(began)) as target:
        scraped = {"job_name": "engines", "scrape_interval": "1s", "static_configs": [{"targets": [target]}]}
        (tmp_path / "prometheus").mkdir()
        with prometheus(tmp_path / "prometheus", {"scrape_configs": [scraped]}) as url:
            address = free_address()
            with serving(tmp_path, url, address):
                until_scraped(address)
                code, said = concluded(address, "8")
                assert (code, said[:20]) == (1, "fail: errors: canary")
                code, said = concluded(address, "7")
                assert (code, said[:20]) == (0, "pass: errors: canary")
                code, said = concluded(address, "6")
                assert (code, said.splitlines()[-1]) == (
                    22,
                    "stable and canary: found '6' twice; expected two versions",
                )
            told = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines() if line.startswith("{")]
            assert [(each["key"]["canary"], each["outcome"]) for each in told] == [
                ("8", "running"),
                ("8", "running"),
                ("8", "fail"),
                ("7", "running"),
                ("7", "pass"),
            ]
            with serving(tmp_path, url, address):
                question = urllib.request.Request(
                    f"http://{address}/v1/verdict?name=support-llm&stable=6&canary=8&run=1",
                    headers={"Authorization": f"Bearer {TOKEN}"},
                )
                with urllib.request.urlopen(question, timeout=60) as answer:
                    assert json.load(answer)["outcome"] == "fail"
    for path in (tmp_path / "state/gate-sessions").glob("*.jsonl"):
        with path.open() as lines:
            assert replay(read(lines, file=str(path))) == []


def test_a_prometheus_that_is_away_is_told_at_once_and_no_verdict_is_running(tmp_path: Path) -> None:
    address = free_address()
    with serving(tmp_path, "http://127.0.0.1:9", address):
        question = f"http://{address}/v1/verdict?name=support-llm&stable=6&canary=7"
        asked = ["curl", "--silent", "--write-out", " %{http_code}", "--header", f"Authorization: Bearer {TOKEN}"]
        said = subprocess.run([*asked, question], capture_output=True, text=True, check=True).stdout
    assert said.endswith(" 503") and json.loads(said.removesuffix(" 503"))["outcome"] == "error"
    log = (tmp_path / "log").read_text()
    assert "Prometheus at http://127.0.0.1:9 does not answer" in log
    assert "until it answers, verdicts are `error`" in log
