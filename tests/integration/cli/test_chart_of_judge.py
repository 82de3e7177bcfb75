"""The chart of the judge, rendered by Helm itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.services.helm import HELM, helm, objects

from pipelines.judging.gate_sets import read_gates

pytestmark = pytest.mark.skipif(not (HELM / "helm_python").exists(), reason="`make test-tools` installs Helm")

ROOT = Path(__file__).parents[3]
CHART, TEMPLATES = ROOT / "examples/helm/tidegate-judge", ROOT / "examples/gates/argo-rollouts/analysis-templates.yaml"
VALUES = {"image": "registry.example.com/tidegate@sha256:" + "a" * 64, "prometheus": "http://prometheus:9090"}


def rendered(**values: Any) -> dict[str, Any]:
    found = helm(CHART, {**VALUES, **values}, "tidegate-judge")
    assert "refused" not in found, found
    return {f"{body['kind']}/{body['metadata']['name']}": body for body in objects(found["files"])}


def test_the_chart_is_a_judge_without_rights_that_reads_its_gates(tmp_path: Path) -> None:
    found = rendered(args=["--within=2h"])
    kinds = {name.partition("/")[0] for name in found}
    assert kinds == {"ConfigMap", "Secret", "Service", "Deployment", "ClusterAnalysisTemplate"}
    (tmp_path / "gates.yaml").write_text(found["ConfigMap/tidegate-judge"]["data"]["gates.yaml"])
    assert read_gates(tmp_path / "gates.yaml", of_prometheus=True).terms("proxy").gates == ("latency", "errors")
    pod = found["Deployment/tidegate-judge"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["containers"][0]["args"][-1] == "--within=2h"
    assert "--host=tidegate-judge.serving.svc" in pod["containers"][0]["args"]
    own = rendered(token="ours", analysisTemplates=False, prometheusAccess="who")
    assert not [name for name in own if name.startswith(("Secret", "ClusterAnalysis"))]
    assert "--prometheus-access=/access/access.yaml" in str(own["Deployment/tidegate-judge"])


def test_its_templates_are_those_of_the_example() -> None:
    found = rendered()
    for template in yaml.safe_load_all(TEMPLATES.read_text()):
        mine = found["ClusterAnalysisTemplate/tidegate-judge" + template["metadata"]["name"].removeprefix("tidegate")]
        assert yaml.safe_dump(mine["spec"]).replace("judge.serving.svc", "judge.tidegate.svc") == yaml.safe_dump(
            template["spec"]
        )


@pytest.mark.parametrize("missing", ["image", "prometheus"])
def test_what_is_required_is_said(missing: str) -> None:
    assert f"{missing} is required" in str(helm(CHART, {**VALUES, missing: ""}, "tidegate-judge"))
