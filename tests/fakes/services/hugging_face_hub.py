"""The part of Hugging Face's hub that fetching a model takes, as its REST interface is documented: not the hub itself.

Its own library talks to it, over HF_ENDPOINT.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from fakes.services.http import QuietHandler, answering


@dataclass
class Repository:
    """A repository of models."""

    revisions: Mapping[str, str]
    """The commit of each branch and tag."""
    commits: Mapping[str, Path]
    """A folder for each commit."""
    token: str = ""
    """That it is private for; anybody reads it when empty."""
    gated: bool = False


@dataclass
class Hub:
    """Where it answers, and what it was asked."""

    repositories: dict[str, Repository]
    url: str = ""
    asked: list[str] = field(default_factory=list)
    lies: bool = False
    """Whether it says another digest of weights than they have."""


@contextmanager
def hugging_face_hub(repositories: dict[str, Repository]) -> Iterator[Hub]:
    """A hub with these, on the loopback."""
    hub = Hub(repositories)

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.asked.append(f"{self.command} {path}")
            about = path.startswith("/api/models/")
            words = path.removeprefix("/api/models/").strip("/").split("/")
            repository = hub.repositories.get("/".join(words[:2]))
            if repository is None or not _lets_in(repository, self.headers.get("Authorization", "")):
                gated = repository is not None and repository.gated
                error = "GatedRepo" if gated else "RepoNotFound"
                self.answer("no", status=403 if gated else 401, x_error_code=error, x_error_message="no")
                return
            revision = words[3] if len(words) > 3 else "main"
            commit = repository.revisions.get(revision, revision)
            if commit not in repository.commits:
                self.answer("no", status=404, x_error_code="RevisionNotFound", x_error_message="no")
            elif about and words[2] == "tree":
                listed = _listed(repository.commits[commit], lies=hub.lies)
                self.answer(json.dumps([_in_tree(each) for each in listed]), content_type="application/json")
            elif about:
                listed = _listed(repository.commits[commit], lies=hub.lies)
                said = {"id": "/".join(words[:2]), "sha": commit, "siblings": listed, "private": False}
                self.answer(json.dumps(said), content_type="application/json")
            else:
                self._file(repository.commits[commit] / "/".join(words[4:]), commit)

        do_HEAD = do_GET  # noqa: N815

        def _file(self, file: Path, commit: str) -> None:
            if not file.is_file():
                self.answer("no", status=404, x_error_code="EntryNotFound", x_error_message="no")
                return
            content = file.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            self.answer(
                b"" if self.command == "HEAD" else content,
                content_length=str(len(content)),
                etag=f'"{digest}"',
                x_repo_commit=commit,
                accept_ranges="bytes",
            )

    with answering(Handler) as address:
        hub.url = f"http://{address}"
        yield hub


def _lets_in(repository: Repository, said: str) -> bool:
    return not repository.token or said == f"Bearer {repository.token}"


def _in_tree(entry: Mapping[str, Any]) -> dict[str, object]:
    """The same file as the hub lists it in a folder."""
    said = {"type": "file", "path": entry["rfilename"], "size": entry["size"], "oid": "0" * 40}
    large = entry.get("lfs")
    return said | ({"lfs": {"oid": large["sha256"], "size": large["size"], "pointerSize": 134}} if large else {})


def _listed(folder: Path, *, lies: bool) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = file.read_bytes()
        entry: dict[str, object] = {"rfilename": file.relative_to(folder).as_posix(), "size": len(content)}
        if file.suffix in {".safetensors", ".bin"}:
            digest = hashlib.sha256(content + b"?" * lies).hexdigest()
            entry["lfs"] = {"sha256": digest, "size": len(content), "pointerSize": 134}
        found.append(entry)
    return found
