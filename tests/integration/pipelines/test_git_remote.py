"""A repository over http and ssh, by the machine's own git: who is let in, who is not, and no secret in any word."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from fakes.services.git_repository import TeamRepository
from fakes.services.git_servers import SSHD, Door, SshDoor, basic, over_http, over_ssh
from fakes.services.sockets import free_address

from pipelines.repository import BranchMoved, GitAway, GitMissing, GitRefused, GitRemote
from pipelines.spec.git import GitSpec
from tidegate.core.access import CredentialMissing, SecretStore
from tidegate.core.clock import SystemClock
from tidegate.core.errors import UsageError
from tidegate.core.spec import SpecError

SECRET = "hunter2-S3cret"
FILE = "apps/values.yaml"
FILES = [{"path": FILE, "set": {"/a": "{version}"}}]
BASIC = {"basic": {"username": "ci", "password": {"env": "TIDEGATE_SPEC_GIT"}}}


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
    found = one.read([FILE])
    return one.commit(found, {FILE: text}, "bumped\n", **said)


def test_over_http_with_a_password(team: TeamRepository, door: Door) -> None:
    one = remote(door.address, {"TIDEGATE_SPEC_GIT": SECRET}, auth=BASIC)
    commit = bumped(one)
    assert (team.commits()[0], team.text(FILE)) == (commit, "a: 2\n")
    assert set(door.heard) == {basic("ci", SECRET)}


def test_over_http_with_a_token(team: TeamRepository) -> None:
    with over_http(team.bare, f"Bearer {SECRET}") as door:
        bumped(remote(door.address, {"TIDEGATE_SPEC_GIT": SECRET}, auth={"bearer": {"env": "TIDEGATE_SPEC_GIT"}}))
    assert team.text(FILE) == "a: 2\n"


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
        remote(f"http://{free_address()}/x.git").read([FILE])


def test_without_git_one_line_says_so(team: TeamRepository) -> None:
    spec = GitSpec.model_validate({"repository": team.url, "files": FILES})
    with pytest.raises(GitMissing, match="`git` is not installed on this machine; install it"):
        GitRemote(spec, SystemClock(), program="no-such-git").read([FILE])


def test_a_branch_that_moved_is_told_and_never_forced(team: TeamRepository) -> None:
    one = remote(team.url)
    found = one.read([FILE])
    other = team.person_writes({"README.md": "hello\n"})
    with pytest.raises(BranchMoved):
        one.commit(found, {FILE: "a: 2\n"}, "late\n")
    assert team.commits()[0] == other


def test_a_commit_is_known_in_what_comes_after_it(team: TeamRepository) -> None:
    one = remote(team.url)
    found = one.read([FILE])
    own = one.commit(found, {FILE: "a: 2\n"}, "x\n\nTidegate-Delivery: 7\n")
    later = team.person_writes({"README.md": "hello\n"})
    one.read([])
    assert one.includes(later, own)
    assert not one.includes(own, later)
    assert not one.includes("0" * 40, own)
    with pytest.raises(UsageError, match=r"has no branch nowhere; name one: git\.branch"):
        remote(team.url, branch="nowhere").read([FILE])


def test_links_folders_and_binary_files_are_refused(team: TeamRepository) -> None:
    clone = team.bare.with_name("clone")
    (clone / "link.yaml").symlink_to("/etc/passwd")
    team.person_writes({"latin.yaml": "a: 1\n", "apps/x": ""})
    (clone / "latin.yaml").write_bytes(b"a: \xe9\n")
    team.person_writes({}, "latin")
    for path, found in (
        ("link.yaml", "a folder, a link"),
        ("apps", "a folder, a link"),
        ("latin.yaml", "latin.yaml:1"),
    ):
        with pytest.raises(SpecError, match=found):
            remote(team.url).read([path])


def test_a_file_keeps_its_mode_and_its_last_line(team: TeamRepository) -> None:
    (team.bare.with_name("clone") / FILE).chmod(0o755)
    team.person_writes({FILE: "a: 1 # without an end of line"})
    bumped(remote(team.url), "a: 2 # without an end of line")
    assert team.text(FILE) == "a: 2 # without an end of line"
    assert team._at("ls-tree", "main", FILE).startswith("100755 ")


needs_sshd = pytest.mark.skipif(SSHD is None, reason="needs sshd: apt install openssh-server")


@pytest.fixture
def ssh(team: TeamRepository, tmp_path: Path) -> Iterator[SshDoor]:
    with over_ssh(team.bare, tmp_path / "sshd") as door:
        yield door


def by_key(tmp_path: Path, door: SshDoor, **changes: str) -> dict[str, Any]:
    """The key as a Secret is mounted: readable by all."""
    auth = {}
    for name, text in {"key": door.key, "known_hosts": door.known_hosts, **changes}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o644)
        auth[name] = {"file": str(tmp_path / name)}
    return {"auth": {"ssh": auth}}


@needs_sshd
def test_over_ssh_with_a_key(team: TeamRepository, ssh: SshDoor, tmp_path: Path) -> None:
    bumped(remote(ssh.address, **by_key(tmp_path, ssh)))
    assert team.text(FILE) == "a: 2\n"


@needs_sshd
def test_over_ssh_to_a_host_that_is_not_known(ssh: SshDoor, tmp_path: Path) -> None:
    with pytest.raises(GitRefused, match=r"(?i)host key verification failed"):
        bumped(remote(ssh.address, **by_key(tmp_path, ssh, known_hosts="other.example ssh-ed25519 AAAA\n")))
