"""Pull requests by REST: served fakes that answer as the forges' documentation has it. No forge was asked.

Each forgets nothing, refuses what its documentation refuses, and wants its own kind of token.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from pipelines.adapters.git.forges import forge_of
from pipelines.repository import GitAway, GitRefused, PullRequests, PullRequestState
from pipelines.spec.git import GitSpec
from tidegate.core.access.secrets import SecretStore

pytestmark = pytest.mark.long

SECRET = "hunter2-S3cret"
FILES = [{"path": "a.yaml", "set": {"a": "{version}"}}]
REPOSITORIES = {
    "github": ("git@github.com:acme/serving.git", "api.github.com", "/repos/acme/serving/pulls"),
    "gitlab": ("https://gitlab.example/a/b/c.git", "gitlab.example", "/api/v4/projects/a%2Fb%2Fc/merge_requests"),
    "gitea": ("ssh://git@gitea.example/acme/serving.git", "gitea.example", "/api/v1/repos/acme/serving/pulls"),
}  # fmt: skip


class Served:
    """One forge's requests of one project."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        _, self.host, self.path = REPOSITORIES[kind]
        self.requests: list[dict[str, Any]] = []
        self.away = False

    def __call__(self, asked: httpx.Request) -> httpx.Response:
        if self.away:
            return httpx.Response(502, text="bad gateway")
        if not self._let_in(asked.headers):
            return httpx.Response(401, json={"message": f"Bad credentials {dict(asked.headers)}"})
        path = asked.url.raw_path.decode().partition("?")[0]
        assert asked.url.host == self.host
        if path == self.path:
            return self._all(asked)
        assert path.startswith(f"{self.path}/"), path
        number = int(path.rpartition("/")[2])
        if number > len(self.requests):
            return httpx.Response(404, json={"message": "Not Found"})
        if asked.method != "GET":
            self._change(number, asked)
        return httpx.Response(200, json=self._shown(number))

    def _let_in(self, headers: httpx.Headers) -> bool:
        if self.kind == "gitlab":
            return headers.get("PRIVATE-TOKEN") == SECRET
        return headers.get("Authorization") == f"{'Bearer' if self.kind == 'github' else 'token'} {SECRET}"

    def _all(self, asked: httpx.Request) -> httpx.Response:
        if asked.method == "GET":
            return httpx.Response(200, json=[self._shown(n) for n in self._found(dict(asked.url.params))])
        said = json.loads(asked.content)
        if self.kind == "gitlab":
            said = {"head": said["source_branch"], "base": said["target_branch"], "title": said["title"]}
        if any((each["head"], each["state"]) == (said["head"], "open") for each in self.requests):
            return httpx.Response(422 if self.kind == "github" else 409, json={"message": "already exists"})
        self.requests.append({**said, "state": "open"})
        return httpx.Response(201, json=self._shown(len(self.requests)))

    def _found(self, params: dict[str, str]) -> list[int]:
        head = params.get("head", params.get("source_branch", ""))
        if self.kind == "github":
            owner, _, head = head.partition(":")
            assert owner == "acme"
        return [n for n, each in enumerate(self.requests, 1)
                if each["state"] == "open" and (not head or each["head"] == head)]  # fmt: skip

    def _change(self, number: int, asked: httpx.Request) -> None:
        said = json.loads(asked.content)
        assert (asked.method, said) == (
            ("PUT", {"state_event": "close"}) if self.kind == "gitlab" else ("PATCH", {"state": "closed"})
        )
        self.requests[number - 1]["state"] = "closed"

    def _shown(self, number: int) -> dict[str, Any]:
        one = self.requests[number - 1]
        if self.kind == "gitlab":
            state = {"open": "opened"}.get(one["state"], one["state"])
            return {"iid": number, "id": 900 + number, "web_url": f"https://{self.host}/mr/{number}", "state": state}
        merged = one["state"] == "merged"
        shown = {"number": number, "id": 900 + number, "html_url": f"https://{self.host}/pulls/{number}"}
        shown |= {
            "state": "open" if one["state"] == "open" else "closed",
            "merged_at": "2026-11-26" if merged else None,
        }
        return shown | {"head": {"ref": one["head"]}, "base": {"ref": one["base"]}}


@pytest.fixture(params=sorted(REPOSITORIES))
def served(request: pytest.FixtureRequest) -> Served:
    return Served(request.param)


def requests_at(
    served: Served | Callable[[httpx.Request], httpx.Response], kind: str, token: str = SECRET
) -> PullRequests:
    said = {"repository": REPOSITORIES[kind][0], "files": FILES, "mode": "pull-request"}
    git = GitSpec.model_validate({**said, "forge": {"kind": kind, "token": {"env": "TIDEGATE_SPEC_FORGE"}}})
    found = forge_of(git, SecretStore({"TIDEGATE_SPEC_FORGE": token}), httpx.MockTransport(served))
    assert found is not None
    return found


def test_one_is_opened_once_followed_and_closed(served: Served) -> None:
    requests = requests_at(served, served.kind)
    first = requests.open("tidegate/a", "main", "llm 2 serves eu", "why")
    assert (first.number, first.state) == (1, PullRequestState.OPEN)
    assert first.url.startswith(f"https://{served.host}/")
    assert requests.open("tidegate/a", "main", "llm 2 serves eu", "why") == first
    assert requests.open("tidegate/b", "main", "llm 2 serves us", "why").number == 2
    served.requests[0]["state"] = "merged"
    assert requests.look(1).state is PullRequestState.MERGED
    requests.close(2)
    assert requests.look(2).state is PullRequestState.CLOSED
    assert [each["title"] for each in served.requests] == ["llm 2 serves eu", "llm 2 serves us"]


def test_a_token_that_is_refused_is_in_no_word(served: Served) -> None:
    requests = requests_at(served, served.kind, token=f"{SECRET}x")
    with pytest.raises(GitRefused, match="answered 401") as failed:
        requests.look(1)
    told = f"{failed.value} {failed.value.detail} {failed.getrepr(chain=True, showlocals=False)!s}"
    assert SECRET not in told.split("Bad credentials")[1].split("E ", maxsplit=1)[0]
    assert f"{SECRET}x" not in str(failed.value)


def test_a_forge_that_is_away_may_come_back(served: Served) -> None:
    served.away = True
    with pytest.raises(GitAway, match="answered 502"):
        requests_at(served, served.kind).look(1)

    def cut(asked: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no", request=asked)

    with pytest.raises(GitAway, match=r"no answer \(ConnectError\)"):
        requests_at(cut, served.kind).look(1)
