"""Helm, by its own SDK; `make test-tools` installs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

HELM = Path(__file__).parents[3] / ".helm"

_RUN_HELM = """
import json, sys
import helm_python as helm

asked = json.load(sys.stdin)
found = {"lint": helm.lint(asked["chart"], asked["values"])}
with helm.Chart.load(asked["chart"]) as chart:
    try:
        chart.validate_schema(asked["values"])
        found["files"] = chart.render(asked["values"], name=asked["name"], namespace=asked["namespace"])
    except helm.HelmError as error:
        found["refused"] = str(error)
print(json.dumps(found))
"""


def helm(chart: Path, values: dict[str, Any], name: str, namespace: str = "serving") -> dict[str, Any]:
    """What Helm's own SDK says of a chart, in a process of its own: Go's runtime stays out of the tests'."""
    asked = json.dumps({"chart": str(chart), "values": values, "name": name, "namespace": namespace})
    environment = {**os.environ, "PYTHONPATH": str(HELM)}
    words = [sys.executable, "-c", _RUN_HELM]
    done = subprocess.run(words, input=asked, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def objects(texts: dict[str, str]) -> list[Any]:
    """Of all files but the notes."""
    manifests = (text for path, text in sorted(texts.items()) if path.endswith(".yaml"))
    return [body for text in manifests for body in yaml.safe_load_all(text) if body]
