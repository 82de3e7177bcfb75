"""A whole delivery to two backends of a route, and back: real commands, an API server on a socket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from fakes.clock import RealTime
from fakes.clusters.region import NAMESPACE
from fakes.clusters.served import behind, delivery_to, mark_images, write_golden_set
from fakes.clusters.two_backends import TwoBackends, peer
from fakes.kube.api import Api
from fakes.kube.cluster import FakeCluster
from fakes.kube.server import serving
from fakes.services.chat_servers import engines
from fakes.terminal import Tidegate

from registry.ports import embedded_uri
from registry.versions import MlflowRegistry

REGION = "eu-west-1"


@pytest.fixture
def region(
    registered: Path, tmp_path: Path, name: str, state: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TwoBackends]:
    """Blue serves version 1; the spec names both."""
    write_golden_set(tmp_path)
    mark_images(MlflowRegistry(embedded_uri(state)), name)
    cluster = FakeCluster(REGION, namespace=NAMESPACE, time=RealTime(speed=20))
    api = Api(cluster)
    with (
        engines(tmp_path / "champion" / "model") as engine,
        serving({REGION: api}, tmp_path, namespace=NAMESPACE) as servers,
    ):
        monkeypatch.setenv("KUBECONFIG", str(servers.kubeconfig))
        spec = delivery_to([[REGION]], name=name, engine=engine.url)
        place = spec["fleet"]["regions"][REGION]
        behind(api, {"llm-blue": place.pop("stable_url"), "llm-green": place.pop("canary_url")})
        peers = {each: peer(each, pools=False, workload=True) for each in ("blue", "green")}
        fleet = {"kind": "route", "namespace": NAMESPACE, "route": "chat", "peers": peers, "keep": "2h"}
        spec["fleet"] = {**fleet, "regions": {REGION: place}}
        registered.write_text(yaml.safe_dump(spec))
        yield servers.do(lambda: TwoBackends(cluster))


@pytest.mark.slow(reason="a process for each command")
def test_a_delivery_to_two_backends_and_back(tidegate: Tidegate, region: TwoBackends) -> None:
    planned = tidegate("plan", "delivery.yaml")
    told = ("no region has a guard", "without a guard `fleet.keep` does nothing", "from then on none goes back to that")
    assert (planned.code, *(each in planned.out for each in told)) == (0, True, True, True), planned
    said = tidegate("deliver", "delivery.yaml", "--output", "json")
    assert (said.code, said.json["ending"], region.weights[0]) == (0, "delivered", (0, 100)), said.err
    lines = tidegate("status", "delivery.yaml").out.splitlines()
    assert lines[1].startswith("eu-west-1: steady, stable 2")
    assert tidegate("doctor", "delivery.yaml", "-o", "json").json[0]["findings"] == []
    back = tidegate("rollback", "delivery.yaml", "--to", "previous", "--yes")
    assert (back.code, back.out, region.weights[0]) == (0, "eu-west-1: version 1\n", (100, 0)), back.err
    again = tidegate("rollback", "delivery.yaml", "--to", "2", "--yes")
    assert (again.code, "version 2 is not warm in eu-west-1; --start" in again.err) == (2, True), again


def test_what_is_rendered_is_the_role_and_the_guard(tidegate: Tidegate, region: TwoBackends) -> None:
    rendered = list(yaml.safe_load_all(tidegate("rollout", "render", "delivery.yaml").out))
    kinds = [each["kind"] for each in rendered]
    assert kinds == ["ServiceAccount", "Role", "RoleBinding"]
    (role,) = (each["rules"] for each in rendered if each["kind"] == "Role")
    written = {(rule["resources"][0], *rule.get("resourceNames", ())) for rule in role if "patch" in rule["verbs"]}
    assert written == {("httproutes", "chat"), ("deployments", "llm-blue"), ("deployments", "llm-green")}
    assert [rule["verbs"] for rule in role if rule["resources"] == ["services/proxy"]] == [["get", "create"]]
