"""The templates' queries, answered by a real Prometheus over traffic that was written down for it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from fakes.metrics.queries import filled_in, outcome
from fakes.services.prometheus import asked, prometheus, written_down

from slo.kubernetes.analysis import analysis_template
from slo.model import EventSli, KubernetesNames, Slo
from tidegate.core.access import PrometheusEndpoint

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Prometheus")

NOW = 1_700_000_000
STEP = 15
SLO = Slo(
    service="support-llm",
    name="availability",
    objective=99.0,
    sli=EventSli(
        error_query='sum(rate(requests_total{code=~"5.."}[{{.window}}]))',
        total_query="sum(rate(requests_total[{{.window}}]))",
    ),
)
STAGE = timedelta(minutes=30)

ARMS = {  # requests a second, and the share of them that fails (long ago, in the last five minutes)
    "healthy": (2.0, 0.001, 0.001),
    "no-error-series": (2.0, None, None),
    "failing": (2.0, 0.5, 0.5),
    "three-requests": (0.002, 1.0, 1.0),
    "over": (2.0, 0.5, 0.0),
    "just-begun": (2.0, 0.0, 0.15),
}


def exposition() -> Iterator[str]:
    for arm, (rate, before, lately) in ARMS.items():
        codes: dict[str, list[float]] = {"200": []} if before is None else {"200": [], "500": []}
        good = bad = 0.0
        for ago in range(3600, -1, -STEP):
            share = (before if ago >= 300 else lately) or 0.0
            good, bad = good + rate * STEP * (1 - share), bad + rate * STEP * share
            for code, samples in codes.items():
                samples.append(good if code == "200" else bad)
        for code, samples in codes.items():
            labels = f'region="eu-west-1",version="{arm}",code="{code}"'
            for index, value in enumerate(samples):
                yield f"requests_total{{{labels}}} {value:.6f} {NOW - 3600 + index * STEP}"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("prometheus")
    written_down(home, ["# TYPE requests counter", *exposition()])
    with prometheus(home) as address:
        yield address


def said_of(url: str, arm: str) -> dict[str, tuple[str, list[float]]]:
    """What each metric says of the arm, and the burn that it saw."""
    names = KubernetesNames(name=SLO.id)
    at = PrometheusEndpoint(url=url)
    template: Any = analysis_template(SLO, stage=STAGE, background=False, names=names, prometheus=at)
    metrics = {metric["name"]: metric for metric in template["spec"]["metrics"]}
    said = {}
    for name, query in filled_in(template, {"region": "eu-west-1", "version": arm}).items():
        burns = [float(sample["value"][1]) for sample in asked(url, query, NOW)]
        said[name.removeprefix("availability-")] = (outcome(metrics[name], burns), burns)
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
def test_an_arm_is_judged_by_its_own_traffic(url: str, arm: str, fast: str, slow: str) -> None:
    said = said_of(url, arm)
    assert {name: outcome for name, (outcome, _) in said.items()} == {"fast-burn": fast, "slow-burn": slow}, said


def test_the_number_is_the_burn_rate(url: str) -> None:
    said = said_of(url, "failing")
    assert said["fast-burn"][1] == pytest.approx([50], rel=0.01)
    assert said_of(url, "healthy")["slow-burn"][1] == pytest.approx([0.1], rel=0.01)
