"""The files in `examples/slo/exported` are those that the command writes.

After an intended change: `TIDEGATE_REGENERATE=1 pytest tests/unit/slo/export/test_example.py`, then read the diff.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.metrics.queries import together

from slo.kubernetes.pod_monitor import ENGINE_PORT
from tidegate.cli import main
from tidegate.core.names import DELIVERY, REGION, ROLE, VERSION

ROOT = Path(__file__).parents[4]
EXAMPLE = ROOT / "examples" / "slo"


def contents(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_the_exported_example_is_current_and_the_docs_say_what_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "TIDEGATE_REGENERATE" in os.environ:
        assert "CI" not in os.environ, "what CI compares with is written by people"
        main(["slo", "export", str(EXAMPLE / "delivery.yaml"), str(EXAMPLE / "exported")])
        capsys.readouterr()
    assert main(["slo", "export", str(EXAMPLE / "delivery.yaml"), str(tmp_path)]) == 0
    assert contents(EXAMPLE / "exported") == contents(tmp_path)
    call = "$ tidegate slo export examples/slo/delivery.yaml slo\n"
    printed = capsys.readouterr().out.replace(str(tmp_path), "slo")
    assert call + printed + "```" in (ROOT / "docs/guides/slo-export.md").read_text()


def rollout() -> dict[str, Any]:
    spec: dict[str, Any] = yaml.safe_load((EXAMPLE / "rollout.yaml").read_text())["spec"]
    return spec


def test_the_rollouts_analyses_name_templates_that_are_exported_and_say_what_these_ask_for() -> None:
    exported = yaml.safe_load_all((EXAMPLE / "exported/analysis-templates.yaml").read_text())
    templates = {template["metadata"]["name"]: template for template in exported}
    canary = rollout()["strategy"]["canary"]
    for analysis in (canary["analysis"], *(step["analysis"] for step in canary["steps"] if "analysis" in step)):
        used = [templates[each["templateName"]] for each in analysis["templates"]]
        assert together(used)
        asked = {each["name"] for template in used for each in template["spec"]["args"] if "value" not in each}
        assert {each["name"] for each in analysis["args"]} == asked


def test_the_rollouts_pods_are_found_and_told_apart_by_the_exported_monitor() -> None:
    engines, _ = yaml.safe_load_all((EXAMPLE / "exported/pod-monitors.yaml").read_text())
    pod = rollout()["template"]
    assert engines["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert {DELIVERY, REGION, VERSION} == set(pod["metadata"]["labels"])
    assert ENGINE_PORT in {port["name"] for each in pod["spec"]["containers"] for port in each["ports"]}
    canary = rollout()["strategy"]["canary"]
    assert [canary[role]["labels"][ROLE] for role in ("canaryMetadata", "stableMetadata")] == ["canary", "stable"]
