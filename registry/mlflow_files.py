"""Where files are that MLflow's artifact repositories reach: on this machine, behind a server, in object stores."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from registry.errors import RegistryError, StoreUnreachable, first_line
from tidegate.core.errors import TidegateError, UsageError, without_credentials

if TYPE_CHECKING:
    from mlflow.store.artifact.artifact_repo import ArtifactRepository

MOST_FILES = 10_000
"""Of a version or a delivery, its folders included."""
_AZURE = ("azure.storage.blob", "azure.identity")
PACKAGES = {
    "s3": ("boto3",), "gs": ("google.cloud.storage",), "wasb": _AZURE, "wasbs": _AZURE, "abfs": _AZURE, "abfss": _AZURE,
}  # fmt: skip
"""By which an object store is asked, by the scheme of its addresses; an extra of tidegate brings them."""
LOGGERS = ("boto3", "botocore", "s3transfer", "google", "azure", "msal", "urllib3")
"""That write tokens, keys and signed addresses below a warning."""
CREDENTIALS = (
    "check the address; who asks must list, read and write there; credentials come from a role of the pod or the "
    "machine, or the variables of the provider's own client, such as AWS_PROFILE, GOOGLE_APPLICATION_CREDENTIALS or "
    "AZURE_STORAGE_CONNECTION_STRING"
)
_AZURE_PLACE = re.compile(
    # Nobody else gets a token: the address is what somebody wrote into MLflow.
    r"(?:wasbs?|abfss?)://([^@/]+@[a-z0-9-]+)\.(?:blob|dfs)\.(core\.(?:windows\.net|chinacloudapi\.cn|usgovcloudapi\.net))(/.*)?"
)


def listed_in(repository: ArtifactRepository, address: str) -> Mapping[str, int]:
    """The size of every file of a repository, by its path; see `Store.listed`.

    Raises:
        RegistryError: there are too many, or a name leads out of the address.
    """
    files, folders, named = dict[str, int](), [""], set[str]()
    while folders:
        for file in repository.list_artifacts(folders.pop() or None):
            if not file.is_dir:
                refuse_leading_out(address, file.path)
                files[file.path] = int(file.file_size or 0)
            elif file.path not in named:
                named.add(file.path)
                folders.append(file.path)
        if len(files) + len(named) > MOST_FILES:
            raise RegistryError(
                f"{address} has more than {MOST_FILES} files and folders",
                hint="log the version again without the files that it does not need",
            )
    # A container that is a file system has an empty object in each folder's place.
    return {path: size for path, size in sorted(files.items()) if path not in named}


def local_folder(address: str) -> Path | None:
    """The folder that an artifact address means; None when it is not on this machine."""
    parts = urlsplit(address)
    if parts.scheme == "file":
        return Path(unquote(parts.path)) if parts.netloc in ("", "localhost") else None
    return Path(address) if address.startswith("/") else None


def clients_of(address: str) -> tuple[str, ...]:
    """The packages that read what lies there, of those that not everybody has."""
    return PACKAGES.get(urlsplit(address).scheme, ())


def blob_address(address: str) -> str:
    """The address by which MLflow asks for blobs, also of what is a file system of Azure's; others as they are.

    Raises:
        UsageError: it is not one of Azure's, and would get a token.
    """
    if clients_of(address) is not _AZURE:
        return address
    parts = urlsplit(address)
    if not (found := _AZURE_PLACE.fullmatch(address)):
        raise UsageError(
            f"{parts.scheme}://{parts.hostname}: is no address of Azure's",
            hint="such as wasbs://CONTAINER@ACCOUNT.blob.core.windows.net/FOLDER, or abfss://...dfs.core.windows.net",
        )
    path = found[3] or ""
    return f"wasbs://{found[1]}.blob.{found[2]}{unquote(path) if parts.scheme.startswith('abfs') else path}"


def refuse_leading_out(address: str, path: str) -> None:
    """Any text may be a name in a store, and files are written here by theirs.

    Raises:
        RegistryError: the path is none of a file below the address.
    """
    if {"", ".", ".."} & set(path.split("/")) or "\\" in path:
        raise RegistryError(f"{address} has a file named {path!r}", hint="log the version again with plain file names")


@contextmanager
def provider_errors(address: str) -> Iterator[None]:
    """Say in one line what the client of an object store raises; other addresses are the caller's."""
    if not clients_of(address):
        yield
        return
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        yield
    except (TidegateError, ModuleNotFoundError):
        raise
    except Exception as error:
        raise StoreUnreachable(f"{address}: {without_credentials(first_line(error))}", hint=CREDENTIALS) from error
