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
from urllib.parse import urlencode

import pytest
from fakes.services.http import page
from fakes.services.prometheus import prometheus
from fakes.services.sockets import free_address, running

from tidegate.core.model import Json

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
    command = [TIDEGATE, "gate", "serve", folder / "gates.yaml", "--prometheus", url]
    options = ["--address", address, "--token", folder / "token", "--output", "json"]
    log = folder / f"{address}.log"
    with running([*map(str, command), *map(str, options)], ready=f"http://{address}/healthz", log=log):
        yield


def concluded(address: str, canary: str) -> tuple[int, str]:
    """How CI's step ends, and what it says."""
    settings = {"JUDGE_URL": f"http://{address}", "JUDGE_TOKEN": TOKEN, "STABLE": "6", "CANARY": canary}
    settings |= {"JUDGE_SECONDS": "240", "JUDGE_PAUSE": "1"}
    said = subprocess.run([SCRIPT], env={**os.environ, **settings}, capture_output=True, text=True, check=False)
    return said.returncode, said.stdout + said.stderr


def asked(address: str, **question: str) -> Json:
    place = f"http://{address}/v1/verdict?{urlencode({'service': 'support-llm', 'stable': '6', **question})}"
    request = urllib.request.Request(place, headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: Json = json.load(answer)
    return found


@pytest.mark.slow(reason="what Prometheus has is settled ten seconds later")
def test_two_replicas_agree_and_one_that_is_killed_has_nothing_to_lose(tmp_path: Path) -> None:
    began = time.time()
    with page(lambda: exposition(began)) as target:
        scraped = {"job_name": "engines", "scrape_interval": "1s", "static_configs": [{"targets": [target]}]}
        (tmp_path / "prometheus").mkdir()
        with prometheus(tmp_path / "prometheus", {"scrape_configs": [scraped]}) as url:
            one, other = free_address(), free_address()
            with serving(tmp_path, url, other):
                with serving(tmp_path, url, one):
                    assert concluded(one, "8")[0] == 1
                    missing = asked(one, canary="9")
                    assert (missing["outcome"], missing["gate"]) == ("error", "evidence")
                    assert 'version="9"' in missing["sentence"]
                    code, said = concluded(one, "7")
                    assert (code, said.startswith("pass: errors: canary failed 0 of ")) == (0, True), said
                    failed = asked(one, canary="8")
                    code, said = concluded(one, "6")
                    refused = "stable and canary: found '6' twice; expected two versions"
                    assert (code, said.splitlines()[-1]) == (22, refused)
                again = asked(other, canary="8")
                assert (again["outcome"], again["sentence"]) == ("fail", failed["sentence"])
                assert again["evidence"]["since"] == failed["evidence"]["since"]
                since = again["evidence"]["since"]
                command = [TIDEGATE, "gate", "check", tmp_path / "gates.yaml", "--prometheus", url, "--stable", "6"]
                command += ["--canary", "8", "-o", "json", "--since"]
                for begins in (since, "canary"):
                    checked = subprocess.run([*command, begins], capture_output=True, text=True, check=False)
                    assert checked.returncode == 1, checked.stderr
                    (verdict,) = json.loads(checked.stdout)["verdicts"]
                    assert verdict["reason"] == failed["sentence"]
    told = [json.loads(line) for line in (tmp_path / f"{one}.log").read_text().splitlines() if line.startswith("{")]
    ends = {each["canary"]: each["outcome"] for each in told}
    assert (ends["8"], ends["7"], ends["9"]) == ("fail", "pass", "error")
