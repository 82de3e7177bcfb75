"""`tidegate rollout adopt` and `release` against API servers on sockets: what they tell, and what they exit with."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from fakes.clusters.region import NAMESPACE, PODS_OF_OTHERS, moved_in
from fakes.clusters.served import Clusters, clusters, delivery_to, mark_images, write_golden_set
from fakes.kube.requests import WRITES
from fakes.terminal import Tidegate
from fakes.workflow.engine import engines

from registry.mlflow_client import embedded_uri
from registry.model import Serving
from registry.versions import MlflowRegistry
from rollouts.kube.resources import PODS, ROLLOUTS

pytestmark = pytest.mark.long

REGION, NAME = "eu-west-1", "support-llm"
ADOPT, RELEASE = ("rollout", "adopt", "delivery.yaml"), ("rollout", "release", "delivery.yaml")


@pytest.fixture
def there(
    registered: Path, tmp_path: Path, name: str, state: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Clusters]:
    """A region where a release of Helm's has the delivery's names, and serves version 1."""
    write_golden_set(tmp_path)
    mark_images(MlflowRegistry(embedded_uri(state)), name)
    with engines(tmp_path / "champion" / "model") as served:
        spec = delivery_to([[REGION]], name=name, engine=served.url)
        spec["fleet"] |= {"replicas": PODS_OF_OTHERS, "pod": {"drain": "2s", "linger": "1s"}}
        registered.write_text(yaml.safe_dump(spec))
        with clusters(spec, tmp_path) as made:
            cluster = made.servers.api(REGION).cluster
            made.servers.do(lambda: moved_in(cluster, NAME, NAMESPACE))
            _until_ready(made)
            monkeypatch.setenv("KUBECONFIG", str(made.servers.kubeconfig))
            yield made


def _until_ready(there: Clusters) -> None:
    api, until = there.servers.api(REGION), time.monotonic() + 60

    def ready() -> int:
        status = api.cluster.get(ROLLOUTS, NAME).get("status") or {}
        return int(status.get("availableReplicas") or 0) if status.get("stableRS") else 0

    while there.servers.do(ready) < PODS_OF_OTHERS:
        assert time.monotonic() < until, "the release does not come up"
        time.sleep(0.1)


def test_adopted_delivered_to_and_given_back(there: Clusters, tidegate: Tidegate, name: str, state: Path) -> None:
    api = there.servers.api(REGION)
    before = there.servers.do(lambda: api.cluster.get(ROLLOUTS, NAME)["spec"])
    planned = tidegate(*ADOPT, "--dry-run")
    assert planned.code == 0, planned.err
    # A pod like theirs is tried as the API server's own dry run.
    assert {call.name for call in api.calls if call.verb in WRITES} == {f"{NAME}-adopted"}
    assert there.servers.do(lambda: api.cluster.find(PODS, f"{NAME}-adopted")) is None
    lines = planned.out.splitlines()
    assert [line.split()[0] for line in lines[:9]] == [
        "ReplicaSet",
        *["Pod"] * 4,
        "Service",
        "Service",
        "HTTPRoute",
        "Rollout",
    ]
    assert f"{REGION}: {NAME} would be adopted by these writes; nothing was written" in lines
    assert any(line.startswith("Helm (Helm release chat) has ") for line in lines), planned.out

    done = tidegate(*ADOPT, "--version", "1")
    assert done.code == 0, done.err
    assert f"{REGION}: {NAME} is adopted" in done.out
    assert (
        tidegate("status", "delivery.yaml").out.splitlines()[1] == f"{REGION}: steady, stable 1, at https://llm.example"
    )
    registry = MlflowRegistry(embedded_uri(state))
    kept = Serving.of(registry.tags(registry.resolve(name, "1"))).now
    assert kept and (kept.name, kept.image) == ("1", "vllm/vllm-openai:v0.11.0")

    again = tidegate(*ADOPT)
    assert (again.code, "was adopted before; nothing was written" in again.out) == (0, True)
    delivered = tidegate("deliver", "delivery.yaml", "--output", "json")
    assert (delivered.code, delivered.json["ending"]) == (0, "delivered"), delivered.err

    back = tidegate(*RELEASE, "--output", "json")
    assert back.code == 0, back.err
    assert back.json["writes"][0]["what"].startswith("starts its own pods again, as version 1")
    assert there.servers.do(lambda: api.cluster.get(ROLLOUTS, NAME)["spec"]) == before
    nothing = tidegate(*RELEASE)
    assert (nothing.code, f"nothing of {NAME} was adopted here" in nothing.err) == (2, True)


def test_a_version_that_is_not_the_champion_is_refused(there: Clusters, tidegate: Tidegate, name: str) -> None:
    said = tidegate(*ADOPT, "--version", "2")
    assert said.code == 2
    assert f"--version: found 2; models:/{name}@champion is version 1" in said.err
    assert not [call for call in there.servers.api(REGION).calls if call.verb in WRITES]
