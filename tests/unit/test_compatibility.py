"""The table of versions: from what the repository knows, and from what a run on clusters asked."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from cluster.kit import pinned
from cluster.versions import BUNDLE, ROUTES, keep, versions_of
from fakes.clock import SimulatedTime
from fakes.kube.api import Api
from fakes.kube.cluster import FakeCluster
from fakes.kube.server import FakeTransport

from rollouts.adapters.kube.client import KubeClient
from rollouts.adapters.kube.credentials import CredentialProvider
from rollouts.kube.resources import CUSTOM_RESOURCE_DEFINITIONS

ROOT = Path(__file__).parents[2]


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("compatibility", ROOT / "docs/compatibility.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look for the names of their fields' types there.
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_versions_are_those_of_locks_schemas_and_clusters(
    table: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = json.loads(table.CLUSTERS.read_text())
    monkeypatch.setattr(table, "CLUSTERS", tmp_path / "versions.json")
    keep({**known, "Kubernetes": "1.99.1"}, tmp_path / "versions.json")
    versions = {row.name: row.version for row in table.rows()}
    assert versions["Kubernetes"] == "1.99.1"
    assert f"\nmlflow=={versions['MLflow']} " in (ROOT / "requirements.lock").read_text()
    assert (ROOT / f"engine_images/arguments/vllm-{versions['vLLM']}.json").exists()
    assert versions["KEDA"].startswith("`@kubernetes-models/keda ")


def test_every_schema_that_manifests_are_judged_by_has_a_row(table: ModuleType) -> None:
    text = table.page()
    sources = {path.stem: json.loads(path.read_text())["source"] for path in table.SCHEMAS.glob("*.json")}
    # Those of what tests really run on have the version that ran, those of sources the commit.
    ran = {"kubernetes", "gateway-api", "argo-workflows"}
    untold = {name: source for name, source in sources.items() if source not in text}
    of_sources = {name: re.search(r" at ([0-9a-f]{12})", source) for name, source in untold.items() if name not in ran}
    assert set(untold) >= ran
    assert [name for name, commit in of_sources.items() if not (commit and commit[1] in text)] == []


def test_a_row_whose_tests_are_gone_is_an_error(table: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = table.Tested("Flux", "2", table.Against.REAL, ("tests/flux",))
    monkeypatch.setattr(table, "rows", lambda: iter([gone]))
    with pytest.raises(SystemExit, match="names tests/flux, which is not there"):
        table.page()


async def test_a_cluster_is_asked_and_the_rest_is_what_is_told_of_it() -> None:
    time = SimulatedTime()
    cluster = FakeCluster(time=time, namespace="llm")
    access = CredentialProvider.fixed("https://eu-west-1.example", clock=time)
    client = KubeClient(access, namespace="llm", clock=time, transport=FakeTransport(Api(cluster)))
    metadata = {"name": ROUTES, "annotations": {BUNDLE: "v1.6.1"}}
    kind = CUSTOM_RESOURCE_DEFINITIONS
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": SPEC}
    await client.create(kind, body)
    found = await versions_of(client, {"Envoy Gateway": "1.9.1", "Argo Workflows": ""})
    await client.close()
    kubernetes = cluster.git_version.removeprefix("v")
    assert found == {"Envoy Gateway": "1.9.1", "Gateway API": "1.6.1", "Kubernetes": kubernetes}


SPEC = {
    "group": "gateway.networking.k8s.io",
    "scope": "Namespaced",
    "names": {"plural": "httproutes", "kind": "HTTPRoute"},
    "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}],
}


def test_a_kit_tells_what_it_builds(tmp_path: Path) -> None:
    (tmp_path / "versions.env").write_text("# Pinned: KEY=VALUE\nK8S=1.35.8\nENVOY_GATEWAY=1.9.1\nPAUSE=1\n")
    assert pinned(tmp_path) == {"Envoy Gateway": "1.9.1"}
