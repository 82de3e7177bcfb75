"""Models of Hugging Face's hub, by its own library: HF_ENDPOINT, HF_TOKEN and HF_HOME are read there.

No error of this module holds a token, or an address with one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from registry.errors import HubAway, UnknownSource
from registry.model_files import CODE, PICKLES
from registry.sources import HubRevision, HubSource

LEFT_OUT = tuple(f"*{suffix}" for suffix in (*PICKLES, CODE))
"""What is never fetched: it may run when it is loaded."""


class HuggingFaceHub:
    """Asks the hub, and keeps what it fetches in the library's own cache: one that broke off is gone on with."""

    def resolve(self, source: HubSource) -> HubRevision:
        """The commit that a branch or tag means now.

        Raises:
            UnknownSource: there is no such repository or revision, or it is not for this token.
            HubAway: the hub did not answer.
        """
        from huggingface_hub import HfApi

        with _hub_errors(source):
            found = HfApi().model_info(source.repository, revision=source.revision, files_metadata=True)
        if not found.sha:
            raise HubAway(f"{source.at(source.revision)}: the hub names no commit", hint="check HF_ENDPOINT")
        large = {each.rfilename: each.lfs.sha256 for each in found.siblings or () if each.lfs}
        return HubRevision(source=source, commit=found.sha, digests=large)

    def fetch(self, revision: HubRevision) -> Path:
        """The folder with its files, all of that commit.

        Raises:
            UnknownSource, HubAway: as `resolve`.
        """
        from huggingface_hub import snapshot_download

        source = revision.source
        with _hub_errors(source):
            return Path(snapshot_download(source.repository, revision=revision.commit, ignore_patterns=list(LEFT_OUT)))


@contextmanager
def _hub_errors(source: HubSource) -> Iterator[None]:
    """Say in one line what the library raises in many, with addresses that a mirror may have put a token into."""
    import httpx2  # what its library asks with
    from huggingface_hub import errors

    place = source.at(source.revision)
    token = "set HF_TOKEN to a token that may read it, once its licence is accepted"
    try:
        yield
    except errors.GatedRepoError:
        raise UnknownSource(f"{place}: the repository is gated, and not for this token", hint=token) from None
    except errors.RevisionNotFoundError:
        raise UnknownSource(f"{place}: no such revision", hint="name a branch, a tag or a commit") from None
    except errors.RepositoryNotFoundError:
        raise UnknownSource(
            f"{place}: no such repository, or a private one", hint=f"check the name, or {token}"
        ) from None
    except errors.HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else "nothing"
        raise HubAway(f"{place}: the hub answered {status}", hint="try again, or check HF_ENDPOINT") from None
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, httpx2.TransportError, OSError) as error:
        raise HubAway(
            f"{place}: the hub did not answer ({type(error).__name__})", hint="check HF_ENDPOINT and the network"
        ) from None
