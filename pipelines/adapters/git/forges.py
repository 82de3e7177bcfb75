"""Pull requests by the REST interfaces of GitHub, GitLab and Gitea (Forgejo), as their documentation has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import quote

import httpx

from pipelines.repository import GitAway, GitRefused, PullRequest, PullRequests, PullRequestState
from pipelines.spec.git import Forge, ForgeSpec, GitSpec
from tidegate.core.access.secrets import SecretStore, scrubbed
from tidegate.core.metadata_servers import request_hook

TIMEOUT_SECONDS = 20.0
TOO_MANY = 429
GITHUB = "github.com"
MOST_WORDS = 200
"""Characters of a forge's own message."""


class Api:
    """Requests to one forge. No error of it holds the token."""

    def __init__(
        self, spec: ForgeSpec, base: str, secrets: SecretStore, transport: httpx.BaseTransport | None = None
    ) -> None:
        """`transport` is for tests; the token is read for every request."""
        self._spec, self._base, self._secrets, self._transport = spec, base, secrets, transport

    def call(self, method: str, path: str, **sent: Any) -> Any:
        """What the forge answers to one request.

        Raises:
            GitAway: nothing, or that it cannot now.
            GitRefused: it says no.
        """
        token = self._secrets.text(self._spec.token)
        try:
            with httpx.Client(
                base_url=self._base,
                transport=self._transport,
                timeout=TIMEOUT_SECONDS,
                headers=self._headers(token),
                event_hooks={"request": [request_hook()]},
            ) as client:
                answer = client.request(method, path, **sent)
        except httpx.TransportError as error:
            away = f"{self._base}: no answer ({type(error).__name__})"
        else:
            if answer.is_success:
                return answer.json()
            words = f"{self._base}: {method} {path} answered {answer.status_code}: {scrubbed(_words(answer), [token])}"
            if answer.status_code != TOO_MANY and answer.status_code < httpx.codes.INTERNAL_SERVER_ERROR:
                raise GitRefused(words, hint="check `git.forge`, and the rights of its token")
            away = words
        # Raised outside, so that no error that holds the request is chained to it.
        raise GitAway(away, hint="check that it can be reached from here")

    def _headers(self, token: str) -> Mapping[str, str]:
        if self._spec.kind == "gitlab":
            return {"PRIVATE-TOKEN": token}
        scheme = "Bearer" if self._spec.kind == "github" else "token"
        return {"Authorization": f"{scheme} {token}", "Accept": "application/json"}


def _words(answer: httpx.Response) -> str:
    try:
        said = answer.json()
    except ValueError:
        return answer.reason_phrase
    text = str(said.get("message") or said.get("error") or said) if isinstance(said, dict) else str(said)
    return " ".join(text.split())[:MOST_WORDS]


class _Forge(Protocol):
    def __call__(self, api: Api, project: str) -> PullRequests: ...


class GitHub:
    """By https://docs.github.com/rest/pulls/pulls."""

    def __init__(self, api: Api, project: str) -> None:
        self._api, self._at, self._owner = api, f"/repos/{project}/pulls", project.partition("/")[0]

    def open(self, branch: str, onto: str, title: str, text: str) -> PullRequest:
        named = {"head": f"{self._owner}:{branch}", "base": onto, "state": "open"}
        there = self._api.call("GET", self._at, params=named)
        if there:
            return _of_github(there[0])
        sent = {"head": branch, "base": onto, "title": title, "body": text}
        return _of_github(self._api.call("POST", self._at, json=sent))

    def look(self, number: int) -> PullRequest:
        return _of_github(self._api.call("GET", f"{self._at}/{number}"))

    def close(self, number: int) -> None:
        self._api.call("PATCH", f"{self._at}/{number}", json={"state": "closed"})


class Gitea:
    """By https://docs.gitea.com/api: as GitHub's, but for the search by branch."""

    def __init__(self, api: Api, project: str) -> None:
        self._api, self._at = api, f"/repos/{project}/pulls"

    def open(self, branch: str, onto: str, title: str, text: str) -> PullRequest:
        open_now = self._api.call("GET", self._at, params={"state": "open", "limit": 50})
        for each in open_now:
            if (each["head"]["ref"], each["base"]["ref"]) == (branch, onto):
                return _of_github(each)
        sent = {"head": branch, "base": onto, "title": title, "body": text}
        return _of_github(self._api.call("POST", self._at, json=sent))

    def look(self, number: int) -> PullRequest:
        return _of_github(self._api.call("GET", f"{self._at}/{number}"))

    def close(self, number: int) -> None:
        self._api.call("PATCH", f"{self._at}/{number}", json={"state": "closed"})


def _of_github(said: Mapping[str, Any]) -> PullRequest:
    merged = bool(said.get("merged") or said.get("merged_at"))
    state = PullRequestState.OPEN if said["state"] == "open" else PullRequestState.CLOSED
    return PullRequest(number=said["number"], url=said["html_url"], state=PullRequestState.MERGED if merged else state)


class GitLab:
    """By https://docs.gitlab.com/api/merge_requests."""

    def __init__(self, api: Api, project: str) -> None:
        self._api, self._at = api, f"/projects/{quote(project, safe='')}/merge_requests"

    def open(self, branch: str, onto: str, title: str, text: str) -> PullRequest:
        named = {"source_branch": branch, "target_branch": onto, "state": "opened"}
        there = self._api.call("GET", self._at, params=named)
        if there:
            return _of_gitlab(there[0])
        sent = {
            "source_branch": branch,
            "target_branch": onto,
            "title": title,
            "description": text,
            "remove_source_branch": True,
        }
        return _of_gitlab(self._api.call("POST", self._at, json=sent))

    def look(self, number: int) -> PullRequest:
        return _of_gitlab(self._api.call("GET", f"{self._at}/{number}"))

    def close(self, number: int) -> None:
        self._api.call("PUT", f"{self._at}/{number}", json={"state_event": "close"})


def _of_gitlab(said: Mapping[str, Any]) -> PullRequest:
    states = {"merged": PullRequestState.MERGED, "closed": PullRequestState.CLOSED}
    state = states.get(said["state"], PullRequestState.OPEN)
    return PullRequest(number=said["iid"], url=said["web_url"], state=state)


_FORGES: Mapping[Forge, _Forge] = {"github": GitHub, "gitlab": GitLab, "gitea": Gitea}
_USUAL: Mapping[Forge, str] = {
    "github": "https://{host}/api/v3",
    "gitlab": "https://{host}/api/v4",
    "gitea": "https://{host}/api/v1",
}


def forge_of(
    git: GitSpec, secrets: SecretStore | None = None, transport: httpx.BaseTransport | None = None
) -> PullRequests | None:
    """Who opens pull requests for a repository; None where the spec names no forge. Asks nobody yet."""
    forge = git.forge
    if forge is None:
        return None
    usual = "https://api.github.com" if git.host == GITHUB else _USUAL[forge.kind].format(host=git.host)
    api = Api(forge, forge.api or usual, secrets or SecretStore(), transport)
    return _FORGES[forge.kind](api, forge.project or git.project)
