"""The templates' queries, answered by a real Prometheus over traffic that was written down for it."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from fakes.analysis import filled_in, outcome

from slo.kubernetes.analysis import Stage, analysis_template
from slo.model import Events, Slo

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Prometheus")

NOW = 1_700_000_000
STEP = 15
SLO = Slo(
    service="support-llm",
    name="availability",
    objective=99.0,
    sli=Events(
        error_query='sum(rate(requests_total{code=~"5.."}[{{.window}}]))',
        total_query="sum(rate(requests_total[{{.window}}]))",
    ),
)
STAGE = Stage(length=timedelta(minutes=30))

ARMS = {  # requests a second, and the share of them that fails (long ago, in the last five minutes)
    "healthy": (2.0, 0.001, 0.001),
    "no-error-series": (2.0, None, None),
    "failing": (2.0, 0.5, 0.5),
    "three-requests": (0.002, 1.0, 1.0),
    "over": (2.0, 0.5, 0.0),
    "just-begun": (2.0, 0.0, 0.15),
}


def exposition() -> Iterator[str]:
    yield "# TYPE requests counter"
    for arm, (rate, before, lately) in ARMS.items():
        codes: dict[str, list[float]] = {"200": []} if before is None else {"200": [], "500": []}
        good = bad = 0.0
        for ago in range(3600, -1, -STEP):
            share = (before if ago >= 300 else lately) or 0.0
            good, bad = good + rate * STEP * (1 - share), bad + rate * STEP * share
            for code, samples in codes.items():
                samples.append(good if code == "200" else bad)
        for code, samples in codes.items():
            labels = f'region="eu-west-1",pod_template_hash="{arm}",code="{code}"'
            for index, value in enumerate(samples):
                yield f"requests_total{{{labels}}} {value:.6f} {NOW - 3600 + index * STEP}"
    yield "# EOF"


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("prometheus")
    (home / "series.txt").write_text("\n".join(exposition()) + "\n")
    (home / "prometheus.yml").write_text("{}\n")
    make = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(home / "series.txt"), str(home / "data")]
    subprocess.run(make, check=True, capture_output=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [
        "prometheus",
        f"--config.file={home / 'prometheus.yml'}",
        f"--storage.tsdb.path={home / 'data'}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address={address}",
    ]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until_ready(f"http://{address}/-/ready", process)
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(10)


def wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except (urllib.error.URLError, TimeoutError):
            assert process.poll() is None and time.monotonic() < until, "Prometheus did not start"
            time.sleep(0.1)


def asked(prometheus: str, arm: str) -> dict[str, tuple[str, list[float]]]:
    """What each metric says of the arm, and the burn that it saw."""
    template: Any = analysis_template(SLO, STAGE, prometheus=prometheus)
    metrics = {metric["name"]: metric for metric in template["spec"]["metrics"]}
    said = {}
    for name, query in filled_in(template, {"region": "eu-west-1", "pod-template-hash": arm}).items():
        parameters = urllib.parse.urlencode({"query": query, "time": NOW})
        with urllib.request.urlopen(f"{prometheus}/api/v1/query?{parameters}", timeout=10) as answer:
            samples = json.load(answer)["data"]["result"]
        burns = [float(sample["value"][1]) for sample in samples]
        said[name] = (outcome(metrics[name], burns), burns)
    return said


@pytest.mark.parametrize(
    ("arm", "fast", "slow"),
    [
        ("healthy", "Successful", "Successful"),
        ("no-error-series", "Successful", "Successful"),
        ("failing", "Failed", "Failed"),
        ("three-requests", "Inconclusive", "Inconclusive"),
        ("absent", "Inconclusive", "Inconclusive"),
        ("over", "Successful", "Successful"),
        ("just-begun", "Failed", "Successful"),
    ],
)
def test_an_arm_is_judged_by_its_own_traffic(prometheus: str, arm: str, fast: str, slow: str) -> None:
    said = asked(prometheus, arm)
    assert {name: outcome for name, (outcome, _) in said.items()} == {"fast-burn": fast, "slow-burn": slow}, said


def test_the_number_is_the_burn_rate(prometheus: str) -> None:
    said = asked(prometheus, "failing")
    assert said["fast-burn"][1] == pytest.approx([50], rel=0.01)
    assert asked(prometheus, "healthy")["slow-burn"][1] == pytest.approx([0.1], rel=0.01)
