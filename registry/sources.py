"""Where the files of a new version come from: a folder, a run of MLflow, or a repository of Hugging Face's hub."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from registry.errors import UnfitModel
from tidegate.core.errors import UsageError
from tidegate.core.model import Value

HINT = "write a folder, runs:/RUN/PATH or hf://ORGANISATION/NAME@REVISION"
_HUB = re.compile(r"hf://(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")
_RUN = re.compile(r"runs:/+(?P<run>\w[\w-]*)(?:/(?P<path>.*))?")


class RunSource(Value):
    """A folder of a run's artifacts: it stays where it is."""

    run: str
    path: str = ""
    """Empty for all of them."""

    @property
    def uri(self) -> str:
        """As MLflow writes it."""
        return f"runs:/{self.run}/{self.path}".rstrip("/")


class HubSource(Value):
    """A repository of models on the hub."""

    repository: str
    """ORGANISATION/NAME."""
    revision: str = "main"
    """A branch, a tag or a commit."""

    def at(self, commit: str) -> str:
        """The same for good."""
        return f"hf://{self.repository}@{commit}"


class HubRevision(Value):
    """A repository of the hub as it was at one commit."""

    source: HubSource
    commit: str
    digests: Mapping[str, str]
    """SHA-256 of its large files, as the hub says it."""

    @property
    def uri(self) -> str:
        """With the commit."""
        return self.source.at(self.commit)

    def require_same(self, digests: Mapping[str, str]) -> None:
        """Compare what was fetched with what the hub says of it.

        Raises:
            UnfitModel: a file is another one, as when a cache was changed.
        """
        for path, digest in self.digests.items():
            if path in digests and digests[path] != digest:
                raise UnfitModel(
                    f"{self.uri}: {path} is not the file that the hub has",
                    hint="remove it from HF_HOME, and try again",
                )


def source_of(text: str) -> Path | RunSource | HubSource:
    """What a person has written.

    Raises:
        UsageError: it begins as an address does, and is none of ours.
    """
    if found := _HUB.fullmatch(text):
        return HubSource(repository=found["repository"], revision=found["revision"] or "main")
    if found := _RUN.fullmatch(text):
        path = (found["path"] or "").strip("/")
        if ".." not in path.split("/"):
            return RunSource(run=found["run"], path=path)
    if re.match(r"[a-z0-9-]{2,}:/", text):
        raise UsageError(f"`{text}` is no source of a model version", hint=HINT)
    return Path(text)
