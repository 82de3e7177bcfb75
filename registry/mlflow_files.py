"""Files wherever MLflow's artifact repositories reach: on this machine, behind a server, in object stores."""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from registry.errors import RegistryError, StoreUnreachable, first_line
from tidegate.core.errors import TidegateError, UsageError, without_credentials

if TYPE_CHECKING:
    from mlflow.store.artifact.artifact_repo import ArtifactRepository

MOST_FILES = 10_000
"""Of a version or a delivery, its folders included."""
ATTEMPTS = 4
"""To bring one file: MLflow's client does not go on with what broke off."""


class Provider(NamedTuple):
    """Of an object store."""

    packages: tuple[str, ...]
    """By which it is asked; an extra of tidegate brings them."""
    loggers: tuple[str, ...]
    """That write tokens, keys and signed addresses below a warning."""
    credentials: str


_S3 = Provider(
    ("boto3",),
    ("boto3", "botocore", "s3transfer"),
    "check the address and MLFLOW_S3_ENDPOINT_URL; who asks must list, read and write there; credentials come from a "
    "role of the pod or the machine, AWS_PROFILE, or AWS_ACCESS_KEY_ID and its secret",
)
_GOOGLE = Provider(
    ("google.cloud.storage",),
    ("google",),
    "check the address; who asks must list, read and write there: workload identity, GOOGLE_APPLICATION_CREDENTIALS, "
    "or `gcloud auth application-default login`",
)
_AZURE = Provider(
    ("azure.storage.blob", "azure.identity"),
    ("azure", "msal"),
    "check the address, and who asks: workload or managed identity, `az login`, AZURE_STORAGE_CONNECTION_STRING, "
    "AZURE_STORAGE_ACCESS_KEY or AZURE_STORAGE_SAS_TOKEN",
)
PROVIDERS = {"s3": _S3, "gs": _GOOGLE, "wasb": _AZURE, "wasbs": _AZURE, "abfs": _AZURE, "abfss": _AZURE}
"""By the scheme of an address."""
_AZURE_PLACE = re.compile(
    # Nobody else gets a token: the address is what somebody wrote into MLflow.
    r"(?:wasbs?|abfss?)://([^@/]+@[a-z0-9-]+)\.(?:blob|dfs)\.(core\.(?:windows\.net|chinacloudapi\.cn|usgovcloudapi\.net))(/.*)?"
)


class MlflowFiles:
    """The files of one store with runs, which knows who hands them out."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._open = lru_cache(maxsize=16)(self._opened)

    def listed(self, address: str) -> Mapping[str, int]:
        """As `Store.listed`."""
        with provider_errors(address):
            repository, files = self._open(address), dict[str, int]()
            folders, named = [""], set[str]()
            while folders and len(files) + len(named) <= MOST_FILES:
                for file in repository.list_artifacts(folders.pop() or None):
                    if not file.is_dir:
                        files[file.path] = int(file.file_size or 0)
                    elif file.path not in named:
                        named.add(file.path)
                        folders.append(file.path)
        if folders:
            raise RegistryError(
                f"{address} has more than {MOST_FILES} files and folders",
                hint="log the version again without the files that it does not need",
            )
        for path in files:
            refuse_leading_out(address, path)
        # A container that is a file system has an empty object in each folder's place.
        return {path: size for path, size in sorted(files.items()) if path not in named}

    def fetch(self, address: str, path: str, target: Path) -> None:
        """As `Store.fetch`; what broke off is begun again."""
        refuse_leading_out(address, path)
        from urllib3.exceptions import HTTPError

        for attempt in range(ATTEMPTS):
            try:
                with provider_errors(address):
                    # Not `download_artifacts`: its threads would outlive a Ctrl-C.
                    self._open(address)._download_file(path, str(target))  # type: ignore[no-untyped-call]
            except HTTPError:
                if attempt == ATTEMPTS - 1:
                    raise
            else:
                return

    def put(self, address: str, path: str, file: Path) -> None:
        """As `Store.put`."""
        folder, _, name = path.rpartition("/")
        with provider_errors(address), tempfile.TemporaryDirectory(prefix="tidegate-") as made:
            # MLflow keeps a file under its own name.
            named = Path(made, name)
            named.symlink_to(file.absolute())
            self._open(address).log_artifact(str(named), folder or None)  # type: ignore[no-untyped-call]

    def _opened(self, address: str) -> ArtifactRepository:
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        return get_artifact_repository(blob_address(address), tracking_uri=self._uri, registry_uri=self._uri)


def local_folder(address: str) -> Path | None:
    """The folder that an artifact address means; None when it is not on this machine."""
    parts = urlsplit(address)
    if parts.scheme == "file":
        return Path(unquote(parts.path)) if parts.netloc in ("", "localhost") else None
    return Path(address) if address.startswith("/") else None


def clients_of(address: str) -> tuple[str, ...]:
    """The packages that read what lies there, of those that not everybody has."""
    provider = PROVIDERS.get(urlsplit(address).scheme)
    return provider.packages if provider else ()


def blob_address(address: str) -> str:
    """The address by which MLflow asks for blobs, also of what is a file system of Azure's; others as they are.

    Raises:
        UsageError: it is not one of Azure's, and would get a token.
    """
    parts = urlsplit(address)
    if PROVIDERS.get(parts.scheme) is not _AZURE:
        return address
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
    provider = PROVIDERS.get(urlsplit(address).scheme)
    if provider is None:
        yield
        return
    for name in (*provider.loggers, "urllib3"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        yield
    except (TidegateError, ModuleNotFoundError):
        raise
    except Exception as error:
        said = without_credentials(first_line(error))
        raise StoreUnreachable(f"{address}: {said}", hint=provider.credentials) from error
