"""Whole deliveries to clusters whose team has them in Git: real git, Argo CD simulated, API servers on sockets."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.clusters.region import an_image
from fakes.clusters.served import Clusters
from fakes.kube.cluster import FakeCluster
from fakes.kube.server import FakeServers
from fakes.services.git_repository import TeamRepository
from fakes.services.git_servers import basic, over_http
from fakes.terminal import Tidegate

from rollouts.kube.resources import APPLICATIONS, ROLLOUTS

REGIONS = ("eu-west-1", "us-east-1")
ARGO_CD = "argocd"


def path(region: str) -> str:
    return f"clusters/{region}/serving.yaml"


SECRET = "hunter2-S3cret"
FILES = [
    {
        "path": "clusters/{region}/serving.yaml",
        "object": "Rollout/support-llm",
        "set": {
            "/spec/template/spec/containers/0/image": "{image}",
            "/spec/template/metadata/labels/tidegate.dev~1version": "{version}",
        },
    }
]
GIT: dict[str, Any] = {
    "files": FILES,
    "auth": {"basic": {"username": "ci", "password": {"env": "TIDEGATE_SPEC_GIT_PASSWORD"}}},
    "sync": {"argo_cd": {"application": "llm-{region}"}, "within": "10m"},
}


@dataclass
class Place:
    """Two regions that serve version 1, and what the team has in Git of them."""

    clusters: Clusters
    team: TeamRepository

    def in_git(self) -> list[str]:
        """The version and the end of the image, region by region."""
        found = []
        for region in REGIONS:
            documents = yaml.safe_load_all(self.team.text(path(region)))
            (template,) = [each["spec"]["template"] for each in documents if each["kind"] == "Rollout"]
            live = partial(self.clusters.servers.api(region).cluster.get, ROLLOUTS, "support-llm")
            assert self.clusters.servers.do(live)["spec"]["template"]["spec"] == template["spec"], "Argo CD writes"
            version = template["metadata"]["labels"]["tidegate.dev/version"]
            found.append(f"{version} {template['spec']['containers'][0]['image'][-2:]}")
        return found


@pytest.fixture
def place(
    on_clusters: Callable[..., Clusters], registered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    """The objects of version 1 are in Git as `tidegate rollout render` prints them, below a comment."""
    served = on_clusters(*REGIONS)
    served.serve("1")
    monkeypatch.setenv("TIDEGATE_SPEC_GIT_PASSWORD", SECRET)
    texts = {}
    for region in REGIONS:
        objects = served.region(region).render(an_image("1"))
        texts[path(region)] = "# Ask the platform team.\n" + yaml.safe_dump_all(objects, sort_keys=False)
    (tmp_path / "team").mkdir()
    team = TeamRepository(tmp_path / "team", texts)
    with over_http(team.bare, basic("ci", SECRET)) as door, applied(served.servers, team):
        said = yaml.safe_load(registered.read_text())
        registered.write_text(yaml.safe_dump({**said, "git": {"repository": door.address, **GIT}}))
        yield Place(served, team)


@contextmanager
def applied(servers: FakeServers, team: TeamRepository) -> Iterator[None]:
    """While Argo CD's Application of each region says that the newest commit is applied."""
    over, metadata = threading.Event(), {"namespace": ARGO_CD}
    kind = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application"}

    def begin(cluster: FakeCluster, name: str) -> None:
        cluster.create_namespace(ARGO_CD)
        cluster.create(APPLICATIONS, {**kind, "metadata": {**metadata, "name": name}})

    def say(cluster: FakeCluster, name: str) -> None:
        found = cluster.get(APPLICATIONS, name, namespace=ARGO_CD)
        status = {"sync": {"revision": team.head, "status": "Synced"}}
        cluster.update_status(APPLICATIONS, {**found, "status": status})

    def follow() -> None:
        while not over.wait(0.3):
            for region in REGIONS:
                servers.do(partial(say, servers.api(region).cluster, f"llm-{region}"))

    for region in REGIONS:
        servers.do(partial(begin, servers.api(region).cluster, f"llm-{region}"))
    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def no_secret(tmp_path: Path, *texts: str) -> None:
    hidden = (SECRET, basic("ci", SECRET).split()[1])
    files = [each.read_text(errors="replace") for each in tmp_path.rglob("*") if each.is_file()]
    assert not [text for text in (*texts, *files) for secret in hidden if secret in text]


@pytest.mark.long
@pytest.mark.slow(reason="a delivery and a rollback to two regions")
def test_git_says_in_the_end_what_is_served(
    tidegate: Tidegate, place: Place, tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    team, there = place.team, place.clusters
    first = team.commits()
    planned = tidegate("plan", "delivery.yaml")
    assert planned.code == 0, planned
    line = "git@1: on main, clusters/eu-west-1/serving.yaml: /spec/template/spec/containers/0/image becomes"
    assert line in planned.out
    as_data = json.loads(tidegate("plan", "delivery.yaml", "--output", "json").out)["git"]
    assert "2" in [each["after"] for each in as_data["2"]]
    assert team.commits() == first
    said = tidegate("deliver", "delivery.yaml", "--ci")
    assert said.code == 0, said.err
    assert (place.in_git(), there.versions()) == (["2 02", "2 02"], ["2", "2"])
    assert "eu-west-1: Argo CD application llm-eu-west-1 has applied it" in said.err
    newest, before = team.commits()[:2]
    assert [len(team.changed(each)) for each in (newest, before)] == [4, 4]
    assert f"models:/{said.err.split('models:/')[1].split('/')[0]}/2" in team.message(before)
    back = tidegate("rollback", "delivery.yaml", "--to", "previous", "--yes")
    assert (back.code, there.versions(), place.in_git()) == (0, ["1", "1"], ["1 01", "1 01"]), back
    assert team.message().splitlines()[1].endswith(" 1 again serves eu-west-1, us-east-1")
    monkeypatch.setenv("TIDEGATE_SPEC_GIT_PASSWORD", "wrong")
    refused = tidegate("rollback", "delivery.yaml", "--to", "1", "--yes")
    assert (refused.code, "write it there, or by `tidegate rollback --to 1`: http" in refused.err) == (4, True), refused
    no_secret(tmp_path, planned.out, said.out, said.err, back.out, back.err, refused.err)
    no_secret(state)


@pytest.mark.long
def test_what_git_or_argo_cd_does_not_take_is_told_before_anything_begins(
    tidegate: Tidegate, place: Place, registered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found() -> list[str]:
        (git,) = [each for each in tidegate("doctor", "delivery.yaml", "-o", "json").json if each["region"] == "git"]
        return [each["code"] for each in git["findings"]]

    monkeypatch.setenv("TIDEGATE_SPEC_GIT_PASSWORD", "wrong")
    told = tidegate("plan", "delivery.yaml")
    # Who reviews a change of the spec may not have the rights of who delivers it.
    assert (told.code, "`deliver` would not begin: http://127.0.0.1" in told.out) == (0, True), told
    said = tidegate("deliver", "delivery.yaml")
    assert (said.code, "check its address, `git.auth`" in said.err) == (4, True), said.err
    assert found() == ["git"]
    monkeypatch.setenv("TIDEGATE_SPEC_GIT_PASSWORD", SECRET)
    assert found() == []

    registered.write_text(registered.read_text().replace("llm-{region}", "other-{region}"))
    told = tidegate("plan", "delivery.yaml")
    assert (told.code, "begin: eu-west-1: GET applications/other-eu-west-1: " in told.out) == (0, True), told
    said = tidegate("deliver", "delivery.yaml")
    assert (said.code, "name what is there under `git.sync`" in said.err) == (4, True), said.err
    assert found() == ["git"]
    assert (len(place.team.commits()), place.clusters.versions()) == (1, ["1", "1"])
