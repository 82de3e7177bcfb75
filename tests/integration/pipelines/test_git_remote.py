"""A repository over http, by the machine's own git: who is let in, who is not, and no secret in any word."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from fakes.services.git_repository import TeamRepository
from fakes.services.git_servers import Door, basic, over_http
from fakes.services.sockets import free_address

from pipelines.repository import BranchMoved, GitAway, GitMissing, GitRefused, GitRemote
from pipelines.spec.git import GitSpec
from tidegate.core.access import CredentialMissing, SecretStore
from tidegate.core.clock import SystemClock
from tidegate.core.errors import UsageError

SECRET = "hunter2-S3cret"
FILE = "apps/values.yaml"
FILES = [{"path": FILE, "content": "a: {version}"}]
BASIC = {"username": "ci", "password": {"env": "TIDEGATE_SPEC_GIT"}}


@pytest.fixture
def team(tmp_path: Path) -> TeamRepository:
    return TeamRepository(tmp_path, {FILE: "a: 1\n"})


@pytest.fixture
def door(team: TeamRepository) -> Iterator[Door]:
    with over_http(team.bare, basic("ci", SECRET)) as door:
        yield door


def remote(address: str, environment: Mapping[str, str] | None = None, **said: Any) -> GitRemote:
    spec = GitSpec.model_validate({"repository": address, "files": FILES, **said})
    return GitRemote(spec, SystemClock(), secrets=SecretStore(environment or {}))


def bumped(one: GitRemote, text: str = "a: 2\n", **said: Any) -> str:
    return one.write({FILE: text}, "bumped\n", **said)


def test_over_http_with_a_password(team: TeamRepository, door: Door) -> None:
    one = remote(door.address, {"TIDEGATE_SPEC_GIT": SECRET}, auth=BASIC)
    commit = bumped(one)
    assert (team.commits()[0], team.text(FILE)) == (commit, "a: 2\n")
    assert set(door.heard) == {basic("ci", SECRET)}


def test_a_rehearsal_changes_nothing(team: TeamRepository, door: Door) -> None:
    before = team.commits()
    bumped(remote(door.address, {"TIDEGATE_SPEC_GIT": SECRET}, auth=BASIC), dry_run=True)
    assert team.commits() == before


@pytest.mark.parametrize("said", ["wrong password", "no password", "repository that is none", "hook", "busy"])
def test_no_secret_in_what_went_wrong(
    said: str, team: TeamRepository, door: Door, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("GIT_TRACE", "1")
    monkeypatch.setenv("GIT_TRACE_CURL", "1")
    monkeypatch.setenv("GIT_TRACE_REDACT", "0")
    monkeypatch.setenv("GIT_CURL_VERBOSE", "1")
    # The door repeats what it was sent.
    password = f"{SECRET}x" if said == "wrong password" else SECRET
    address = f"{door.address}x" if said == "repository that is none" else door.address
    door.away = said == "busy"
    auth = {} if said == "no password" else {"auth": BASIC}
    one = remote(address, {"TIDEGATE_SPEC_GIT": password}, **auth)
    if said == "hook":
        bumped(one)
        team.hook("pre-receive", "env; cat; exit 1")
    error = GitAway if said == "busy" else GitRefused
    with pytest.raises(error) as failed:
        bumped(one, "a: 3\n")
    told = f"{failed.value!r} {failed.value} {failed.value.detail} {caplog.text} {failed.getrepr(chain=True)!s}"
    assert SECRET not in told.replace(f"password = '{password}'", "")
    assert basic("ci", password).split()[1] not in told
    assert door.address.split("//")[1].split("/")[0] in str(failed.value)


def test_the_child_gets_no_other_secret_of_ours(
    team: TeamRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    program = tmp_path / "git"
    program.write_text(f'#!/bin/sh\nenv >> {seen}\necho "$@" >> {seen}\nexec git "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "aws-secret")
    with over_http(team.bare, basic("ci", SECRET)) as door:
        spec = GitSpec.model_validate({"repository": door.address, "files": FILES, "auth": BASIC})
        one = GitRemote(spec, SystemClock(), secrets=SecretStore({"TIDEGATE_SPEC_GIT": SECRET}), program=str(program))
        bumped(one)
    told = seen.read_text()
    assert "aws-secret" not in told
    arguments = [line for line in told.splitlines() if line.startswith("-c core.hooksPath")]
    assert any(" push " in line for line in arguments)
    assert not any(SECRET in line or basic("ci", SECRET).split()[1] in line for line in arguments)
    assert "GIT_TRACE" not in told


def test_a_variable_that_is_not_set_is_named(door: Door) -> None:
    with pytest.raises(CredentialMissing, match="the environment variable TIDEGATE_SPEC_GIT"):
        bumped(remote(door.address, auth=BASIC))


def test_a_host_that_does_not_answer_is_away() -> None:
    with pytest.raises(GitAway, match="check that it can be reached from here"):
        bumped(remote(f"http://{free_address()}/x.git"))


def test_without_git_one_line_says_so(team: TeamRepository) -> None:
    spec = GitSpec.model_validate({"repository": team.url, "files": FILES})
    with pytest.raises(GitMissing, match="`git` is not installed on this machine; install it"):
        bumped(GitRemote(spec, SystemClock(), program="no-such-git"))


def test_a_branch_that_moved_is_told_and_never_forced(team: TeamRepository) -> None:
    one, others = remote(team.url), list[str]()
    commit = one._committed

    def late(*said: Any) -> str:
        found = commit(*said)
        others.append(team.person_writes({"README.md": "hello\n"}))
        return found

    one._committed = late  # type: ignore[method-assign]
    with pytest.raises(BranchMoved):
        bumped(one)
    assert team.commits()[0] == others[0]


def test_a_branch_that_is_not_there_is_told(team: TeamRepository) -> None:
    with pytest.raises(UsageError, match=r"has no branch nowhere; name one: git\.branch"):
        bumped(remote(team.url, branch="nowhere"))


def test_a_link_or_a_folder_of_that_name(team: TeamRepository) -> None:
    (team.bare.with_name("clone") / "link.yaml").symlink_to("/etc/passwd")
    team.person_writes({}, "a link")
    remote(team.url).write({"link.yaml": "a: 2\n"}, "a file now\n")
    assert team._at("ls-tree", "main", "link.yaml").startswith("100644 blob")
    with pytest.raises(GitRefused, match="update-index failed"):
        remote(team.url).write({"apps": "a: 2\n"}, "not over a folder\n")


def test_what_the_branch_says_already_is_no_commit(team: TeamRepository) -> None:
    assert bumped(remote(team.url), "a: 1\n") == team.commits()[0]
    assert len(team.commits()) == 1
