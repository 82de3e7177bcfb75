"""Every query of every exported template, answered by a real Prometheus over series with the exported labels."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from fakes.engines.exposition import Engine
from fakes.metrics.queries import filled_in, outcome
from fakes.services.prometheus import asked, prometheus, written_down

from slo.metrics import QUALITY

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Prometheus")

TEMPLATES = Path(__file__).parents[3] / "examples/slo/exported/analysis-templates.yaml"
METRICS = [
    pytest.param(template, metric, id=f"{template['metadata']['name']} {metric['name']}")
    for template in yaml.safe_load_all(TEMPLATES.read_text())
    for metric in template["spec"]["metrics"]
]

NOW = 1_700_000_000
STEP = 15
REGION = "eu-west-1"
ARMS = {  # role, version, hash: share of bad answers, requests in a step
    ("stable", "6", "5f4"): (0.0, 20),
    ("canary", "7", "6f7"): (0.9, 20),
}
HEALTHY, FAILING, ABSENT = ({"version": v, "pod-template-hash": h} for v, h in (("6", "5f4"), ("7", "6f7"), ("8", "0")))


def exposition() -> Iterator[str]:
    """Series by series; engines' have a hash, the judge's have none."""
    samples: dict[str, list[str]] = defaultdict(list)
    for (role, version, pods), (bad, requests) in ARMS.items():
        engine = Engine(bad)
        arm = {"service": "support-llm", "region": REGION, "role": role, "version": version}
        for time in range(NOW - 3600, NOW + 1, STEP):
            engine.answer(requests)
            score = (QUALITY.name, {"dimension": "overall"} | arm, 0.2 if bad else 0.95)
            engines = [
                (name, labels | arm | {"pod_template_hash": pods}, value) for name, labels, value in engine.series()
            ]
            for name, labels, value in (*engines, score):
                series = name + "{" + ",".join(f'{key}="{text}"' for key, text in labels.items()) + "}"
                samples[series].append(f"{series} {value} {time}")
    for lines in samples.values():
        yield from lines


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("prometheus")
    written_down(home, exposition())
    with prometheus(home) as address:
        yield address


def said(url: str, template: dict[str, object], metric: dict[str, str], arm: dict[str, str]) -> tuple[str, list[float]]:
    query = filled_in(template, {"region": REGION, **arm})[metric["name"]]
    burns = [float(sample["value"][1]) for sample in asked(url, query, NOW)]
    return outcome(metric, burns), burns


@pytest.mark.parametrize(("template", "metric"), METRICS)
def test_a_healthy_arm_passes_and_a_failing_one_fails(
    url: str, template: dict[str, object], metric: dict[str, str]
) -> None:
    assert said(url, template, metric, HEALTHY) == ("Successful", [0.0])
    verdict, burns = said(url, template, metric, FAILING)
    assert (verdict, len(burns)) == ("Failed", 1)
    assert said(url, template, metric, ABSENT) == ("Inconclusive", [])
