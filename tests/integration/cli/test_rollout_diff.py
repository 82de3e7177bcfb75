"""`tidegate rollout diff` against an API server: what it tells, and what it exits with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.fleet import IMAGE
from fakes.kube.server import FakeServers, one_region
from fakes.terminal import Said, Tidegate

from rollouts.kube.resources import ROLLOUTS, PatchKind, resource_of

REGION = "prod-eu-west-1"
EXAMPLE = Path(__file__).parents[3] / "examples/kubernetes/delivery.yaml"


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServers]:
    with one_region(REGION, tmp_path, monkeypatch, namespace="serving") as servers:
        yield servers


def rollout(tidegate: Tidegate, verb: str, *arguments: str, image: str = IMAGE) -> Said:
    return tidegate(
        "rollout", verb, str(EXAMPLE), "--region", "eu-west-1", "--version", "7", "--image", image, *arguments
    )


def apply(servers: FakeServers, tidegate: Tidegate) -> None:
    """As `kubectl apply --server-side` would."""
    cluster = servers.api(REGION).cluster
    for each in json.loads(rollout(tidegate, "render", "--output", "json").out):
        servers.do(lambda each=each: cluster.apply(resource_of(each), each, manager="tidegate", force=True))


def test_an_empty_cluster_lacks_everything(servers: FakeServers, tidegate: Tidegate) -> None:
    said = rollout(tidegate, "diff")
    assert said.code == 0
    assert said.out.splitlines()[-1] == "Rollout support-llm: new"
    assert len(said.out.splitlines()) == len(json.loads(rollout(tidegate, "render", "--output", "json").out))
    assert rollout(tidegate, "diff", "--exit-code").code == 1


def test_what_others_set_by_hand_is_seen(servers: FakeServers, tidegate: Tidegate) -> None:
    apply(servers, tidegate)
    cluster = servers.api(REGION).cluster
    by_hand = {"spec": {"strategy": {"canary": {"dynamicStableScale": True}}}}
    servers.do(lambda: cluster.patch(ROLLOUTS, "support-llm", by_hand, kind=PatchKind.MERGE, manager="kubectl"))
    said = rollout(tidegate, "diff", "--exit-code")
    assert said.code == 1
    assert "  -      dynamicStableScale: true\n  +      dynamicStableScale: false" in said.out
