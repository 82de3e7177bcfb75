"""Where the files of a new version come from: a folder, a run of MLflow, or a repository of Hugging Face's hub."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from registry.errors import HubAway, UnfitModel, UnknownSource
from registry.files import CODE, PICKLES, digest_files
from tidegate.core.errors import UsageError
from tidegate.core.model import Value

HINT = "write a folder, runs:/RUN/PATH or hf://ORGANISATION/NAME@REVISION"
LEFT_OUT = tuple(f"*{suffix}" for suffix in (*PICKLES, CODE))
"""What is never fetched: it may run when it is loaded."""
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

    @property
    def uri(self) -> str:
        """As a person writes it."""
        return f"hf://{self.repository}@{self.revision}"

    def resolved(self) -> HubSource:
        """The same at the commit that a branch or tag means now.

        Raises:
            UnknownSource: there is no such repository or revision, or it is not for this token.
            HubAway: the hub did not answer.
        """
        from huggingface_hub import HfApi

        with _hub_errors(self):
            commit = HfApi().model_info(self.repository, revision=self.revision).sha
        if not commit:
            raise HubAway(f"{self.uri}: the hub names no commit", hint="check HF_ENDPOINT")
        return HubSource(repository=self.repository, revision=commit)

    def fetched(self) -> tuple[Path, Mapping[str, str]]:
        """The folder with its files, in the library's own cache, and their digests; what broke off is gone on with.

        Raises:
            UnknownSource, HubAway: as `resolved`.
            UnfitModel: a file is not the one that the hub has, as when a cache was changed.
        """
        from huggingface_hub import HfApi, snapshot_download

        with _hub_errors(self):
            listed = HfApi().model_info(self.repository, revision=self.revision, files_metadata=True).siblings
            folder = Path(snapshot_download(self.repository, revision=self.revision, ignore_patterns=list(LEFT_OUT)))
        found = digest_files(folder)
        for each in listed or ():
            if each.lfs and found.get(each.rfilename, each.lfs.sha256) != each.lfs.sha256:
                raise UnfitModel(
                    f"{self.uri}: {each.rfilename} is not the file that the hub has",
                    hint="remove it from HF_HOME, and try again",
                )
        return folder, found


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


@contextmanager
def _hub_errors(source: HubSource) -> Iterator[None]:
    """Say in one line what the library raises in many, with addresses that a mirror may have put a token into."""
    import httpx2  # what its library asks with
    from huggingface_hub import errors

    token = "set HF_TOKEN to a token that may read it, once its licence is accepted"
    try:
        yield
    except errors.GatedRepoError:
        raise UnknownSource(f"{source.uri}: the repository is gated, and not for this token", hint=token) from None
    except errors.RevisionNotFoundError:
        raise UnknownSource(f"{source.uri}: no such revision", hint="name a branch, a tag or a commit") from None
    except errors.RepositoryNotFoundError:
        told = f"{source.uri}: no such repository, or a private one"
        raise UnknownSource(told, hint=f"check the name, or {token}") from None
    except errors.HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else "nothing"
        raise HubAway(f"{source.uri}: the hub answered {status}", hint="try again, or check HF_ENDPOINT") from None
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, httpx2.TransportError, OSError) as error:
        told = f"{source.uri}: the hub did not answer ({type(error).__name__})"
        raise HubAway(told, hint="check HF_ENDPOINT and the network") from None
