"""Hugging Face's hub: a repository of models, brought by its own library into its own cache."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from registry.errors import RegistryError, UnfitModel
from registry.files import CODE, PICKLES, digest_files
from tidegate.core.errors import UsageError
from tidegate.core.process import note

LEFT_OUT = tuple(f"*{suffix}" for suffix in (*PICKLES, CODE))
"""What is never fetched: it may run when it is loaded."""
PLACE = re.compile(r"hf://(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")
"""A branch, a tag or a commit of ORGANISATION/NAME."""


def fetch_from_hub(repository: str, revision: str) -> tuple[str, Path, Mapping[str, str]]:
    """The address at the commit that the revision means now, the folder with its files, and their digests.

    What broke off is gone on with.

    Raises:
        UsageError: there is no such repository or revision, or it is not for this token.
        RegistryError: the hub did not answer.
        UnfitModel: a file is not the one that the hub has, as when a cache was changed.
    """
    from huggingface_hub import HfApi, snapshot_download

    with _hub_errors(f"hf://{repository}@{revision}"):
        info = HfApi().model_info(repository, revision=revision, files_metadata=True)
        uri = f"hf://{repository}@{info.sha}"
        note(f"{uri}: fetching its files")
        folder = Path(snapshot_download(repository, revision=info.sha, ignore_patterns=list(LEFT_OUT)))
    found = digest_files(folder)
    for each in info.siblings or ():
        if each.lfs and found.get(each.rfilename, each.lfs.sha256) != each.lfs.sha256:
            raise UnfitModel(
                f"{uri}: {each.rfilename} is not the file that the hub has",
                hint="remove it from HF_HOME, and try again",
            )
    return uri, folder, found


@contextmanager
def _hub_errors(uri: str) -> Iterator[None]:
    """Say in one line what the library raises in many, with addresses that a mirror may have put a token into."""
    import httpx2  # what its library asks with
    from huggingface_hub import errors

    try:
        yield
    except errors.RevisionNotFoundError:
        raise UsageError(f"{uri}: no such revision", hint="name a branch, a tag or a commit") from None
    except errors.RepositoryNotFoundError:
        raise UsageError(
            f"{uri}: no such repository, or not for this token",
            hint="check the name, or set HF_TOKEN to a token that may read it, once its licence is accepted",
        ) from None
    # The first is an OSError too, as are a cache without the file and HF_HUB_OFFLINE.
    except (httpx2.TransportError, OSError) as error:
        response = getattr(error, "response", None)
        why = f"answered {response.status_code}" if response is not None else f"did not answer ({type(error).__name__})"
        raise RegistryError(f"{uri}: the hub {why}", hint="try again, or check HF_ENDPOINT and the network") from None
