"""Whole deliveries to clusters whose team has them in Git: real git, API servers on sockets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.clusters.served import Clusters
from fakes.services.git_repository import TeamRepository
from fakes.services.git_servers import basic, over_http
from fakes.terminal import Tidegate

REGIONS = ("eu-west-1", "us-east-1")


def path(region: str) -> str:
    return f"clusters/{region}/served.yaml"


SECRET = "hunter2-S3cret"
GIT: dict[str, Any] = {
    "files": [{"path": "clusters/{region}/served.yaml", "content": "image: {image}\nversion: '{version}'\n"}],
    "auth": {"username": "ci", "password": {"env": "TIDEGATE_SPEC_GIT_PASSWORD"}},
}


@dataclass
class Place:
    """Two regions that serve version 1, and what the team has in Git of them."""

    clusters: Clusters
    team: TeamRepository

    def in_git(self) -> list[str]:
        """The version and the end of the image, region by region."""
        said = [yaml.safe_load(self.team.text(path(region))) for region in REGIONS]
        return [f"{each['version']} {each['image'][-2:]}" for each in said]


@pytest.fixture
def place(
    on_clusters: Callable[..., Clusters], registered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    served = on_clusters(*REGIONS)
    served.serve("1")
    monkeypatch.setenv("TIDEGATE_SPEC_GIT_PASSWORD", SECRET)
    (tmp_path / "team").mkdir()
    team = TeamRepository(tmp_path / "team", {"README.md": "Ask the platform team.\n"})
    with over_http(team.bare, basic("ci", SECRET)) as door:
        said = yaml.safe_load(registered.read_text())
        registered.write_text(yaml.safe_dump({**said, "git": {"repository": door.address, **GIT}}))
        yield Place(served, team)


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
    assert f"in the end, on main of Git: {', '.join(map(path, REGIONS))}" in planned.out
    assert json.loads(tidegate("plan", "delivery.yaml", "--output", "json").out)["git"] == [*map(path, REGIONS)]
    assert team.commits() == first
    said = tidegate("deliver", "delivery.yaml", "--ci")
    assert said.code == 0, said.err
    assert (place.in_git(), there.versions()) == (["2 02", "2 02"], ["2", "2"])
    assert team.commits()[1:] == first
    assert f"models:/{said.err.split('models:/')[1].split('/')[0]}/2" in team.message()
    back = tidegate("rollback", "delivery.yaml", "--to", "previous", "--yes")
    assert (back.code, there.versions(), place.in_git()) == (0, ["1", "1"], ["1 01", "1 01"]), back
    assert team.message().splitlines()[1].endswith(" 1 again serves eu-west-1, us-east-1")
    monkeypatch.setenv("TIDEGATE_SPEC_GIT_PASSWORD", "wrong")
    refused = tidegate("rollback", "delivery.yaml", "--to", "1", "--yes")
    assert (refused.code, "write it there, or by `tidegate rollback --to 1`: http" in refused.err) == (4, True), refused
    no_secret(tmp_path, planned.out, said.out, said.err, back.out, back.err, refused.err)
    no_secret(state)


@pytest.mark.long
def test_what_git_does_not_take_is_told_before_anything_begins(
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

    assert (len(place.team.commits()), place.clusters.versions()) == (1, ["1", "1"])
