"""`tidegate deliver`, `status` and `rollback` against API servers and engines on sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from fakes.clusters.region import NAMESPACE, moved_in
from fakes.clusters.served import Clusters, mark_images
from fakes.kube.server import FakeServers
from fakes.services.sockets import Posted, receiving
from fakes.terminal import Tidegate

from registry.conventions import ENGINE_IMAGE
from registry.ports import embedded_uri
from registry.versions import MlflowRegistry
from rollouts.kube.resources import ROLLOUTS

REGIONS = ("eu-west-1", "us-east-1")


@pytest.fixture
def servers(on_clusters: Callable[..., Clusters]) -> FakeServers:
    """Two empty regions, with their controllers."""
    hook = {"webhook": {"url_from_env": "TIDEGATE_SPEC_DELIVERIES_HOOK"}}
    return on_clusters(*REGIONS, change=lambda spec: spec.update(notify=[hook])).servers


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page of the job, as GitHub names it."""
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "page.md"))
    return tmp_path / "page.md"


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Posted]:
    """Anyone who the delivery notifies."""
    with receiving() as receiver:
        monkeypatch.setenv("TIDEGATE_SPEC_DELIVERIES_HOOK", receiver.url)
        yield receiver


def test_a_plan_says_what_a_delivery_refuses(tidegate: Tidegate, servers: FakeServers, name: str, state: Path) -> None:
    assert tidegate("plan", "delivery.yaml").code == 0
    registry = MlflowRegistry(embedded_uri(state))
    registry.mark(registry.resolve(name, "2"), {ENGINE_IMAGE: "registry.example/llm:2"})
    said = tidegate("deliver", "delivery.yaml")
    reason = said.err.split(": ", 1)[1]
    assert (said.code, "names its engine image by a tag" in reason) == (2, True)
    told = tidegate("plan", "delivery.yaml")
    assert (told.code, f"`deliver` would not begin: {reason}" in told.out) == (2, True), told
    mark_images(registry, name)


@pytest.mark.slow(reason="a process for each command; a region that is away is waited for")
def test_a_delivery_to_clusters_and_back(
    tidegate: Tidegate, servers: FakeServers, heard: Posted, name: str, page: Path
) -> None:
    said = tidegate("deliver", "delivery.yaml", "--ci", "--output", "json")
    assert (said.code, said.json["ending"]) == (0, "delivered"), said.err
    assert [(body["kind"], body["delivery"]) for body in heard.bodies] == [
        (kind, said.json["delivery"]) for kind in ("opened", "closed")
    ]
    (head,) = heard.bodies[-1]["heads"]
    delivery = said.json["delivery"]
    assert tidegate("audit", "verify", delivery, "--head", str(head)).code == 0
    assert tidegate("audit", "verify", delivery, "--head", "0" * 64).code == 5
    assert "secret" not in said.err + said.out
    report = ElementTree.parse("tidegate-junit.xml").getroot()
    assert {mark: report.attrib[mark] for mark in ("failures", "errors", "skipped")} == dict.fromkeys(
        ("failures", "errors", "skipped"), "0"
    )
    assert page.read_text().startswith(f"### {name} 2 is in production\n")
    told = tidegate("status", "delivery.yaml").out.splitlines()
    assert told[1:] == [f"{region}: steady, stable 2, previous 1, at https://llm.example" for region in REGIONS]
    stays = tidegate("rollback", "delivery.yaml")
    assert (stays.code, stays.out) == (0, "".join(f"{region}: version 2\n" for region in REGIONS))
    back = tidegate("rollback", "delivery.yaml", "--to", "previous", "--yes")
    assert (back.code, back.out) == (0, "".join(f"{region}: version 1\n" for region in REGIONS))
    listed = tidegate("model", "list", name).out
    assert "champion" in listed
    assert "previous" not in listed


def test_a_plan_names_what_others_have_there_as_data_too(tidegate: Tidegate, servers: FakeServers) -> None:
    servers.do(lambda: moved_in(servers.api("us-east-1").cluster, "support-llm", NAMESPACE))
    said = tidegate("plan", "delivery.yaml", "--output", "json")
    assert said.code == 2
    (there,) = said.json["foreign_objects"].items()
    assert (there[0], {each["kind"] for each in there[1]}) == ("us-east-1", {"Rollout", "Service", "HTTPRoute"})


def test_an_image_from_elsewhere_than_the_trust_file_allows_is_refused_before_anything_is_opened(
    tidegate: Tidegate, servers: FakeServers, tmp_path: Path
) -> None:
    trust = {"apiVersion": "tidegate/v1", "kind": "Trust", "engines": {"images": ["registry.bank.example/engines/*"]}}
    (tmp_path / "operator").mkdir()
    (tmp_path / "operator" / "trust.yaml").write_text(yaml.safe_dump(trust))
    for command in ("plan delivery.yaml", "stage open delivery.yaml", "deliver delivery.yaml"):
        said = tidegate(*command.split(), "--trust", "operator/trust.yaml")
        assert said.code == 5, command
        told = said.out if command.startswith("plan") else said.err
        assert "is from none of the allowed repositories: registry.bank.example/engines/*" in told
    assert servers.do(lambda: servers.api("eu-west-1").cluster.list(ROLLOUTS)) == []
