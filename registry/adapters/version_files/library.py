"""Files wherever MLflow's own client reads and writes them: behind a tracking server, in object stores, in volumes."""

from __future__ import annotations

import logging
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from registry.adapters.mlflow_calls import load_mlflow
from registry.adapters.mlflow_library import store_errors
from registry.adapters.version_files.folder import FolderFiles
from registry.errors import RegistryError, StoreUnreachable
from tidegate.core.errors import TidegateError, UsageError, without_credentials

if TYPE_CHECKING:
    from mlflow.store.artifact.artifact_repo import ArtifactRepository

MOST_FILES = 10_000
"""Of a version or a delivery, its folders included."""
PARTIAL, RANGE_BEHIND_THE_END = 206, 416
ATTEMPTS = 4
PAUSE_SECONDS = 2.0
"""Before the third attempt to get one more byte; the second comes at once, and each further pause is twice as long."""


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


class LibraryFiles:
    """An `ArtifactFiles`."""

    def __init__(self, uri: str) -> None:
        """`uri` is that of the store, which knows who hands out artifacts."""
        self._uri = uri
        self._open = lru_cache(maxsize=16)(self._opened)

    def listed(self, address: str) -> Mapping[str, int]:
        with self._errors(address):
            repository = self._open(address)
            files: dict[str, int] = {}
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
        # A container that is a file system has an empty object in each folder's place.
        return {path: size for path, size in files.items() if path not in named}

    def parts(self, address: str, path: str, near: Path | None = None) -> Iterator[bytes]:
        with self._errors(address):
            from mlflow.store.artifact.http_artifact_repo import HttpArtifactRepository

            repository = self._open(address)
            if isinstance(repository, HttpArtifactRepository):
                yield from _streamed(repository.artifact_uri, path)
                return
            with tempfile.TemporaryDirectory(prefix=".download-", dir=near) as folder:
                # Not `download_artifacts`: its threads would outlive a Ctrl-C.
                repository._download_file(path, str(Path(folder, "file")))  # type: ignore[no-untyped-call]
                yield from FolderFiles().parts(folder, "file")

    def put(self, address: str, path: str, file: Path) -> None:
        folder, _, name = path.rpartition("/")
        with self._errors(address), tempfile.TemporaryDirectory(prefix="tidegate-") as made:
            # MLflow keeps a file under its own name.
            named = Path(made, name)
            named.symlink_to(file.absolute())
            self._open(address).log_artifact(str(named), folder or None)  # type: ignore[no-untyped-call]

    def _opened(self, address: str) -> ArtifactRepository:
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        return get_artifact_repository(blob_address(address), tracking_uri=self._uri, registry_uri=self._uri)

    @contextmanager
    def _errors(self, address: str) -> Iterator[None]:
        provider = PROVIDERS.get(urlsplit(address).scheme)
        if provider is None:
            with store_errors(self._uri):
                yield
            return
        load_mlflow()
        for name in (*provider.loggers, "urllib3"):
            logging.getLogger(name).setLevel(logging.WARNING)
        try:
            yield
        except (TidegateError, ModuleNotFoundError):
            raise
        except Exception as error:
            said = without_credentials((str(error).strip().splitlines() or [type(error).__name__])[0])
            raise StoreUnreachable(f"{address}: {said[:200]}", hint=provider.credentials) from error


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


def _streamed(folder: str, path: str) -> Iterator[bytes]:
    """A file's bytes, by MLflow's own requests. A connection that breaks is gone on with where it broke."""
    from mlflow.exceptions import MlflowException
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.request_utils import augmented_raise_for_status
    from mlflow.utils.rest_utils import http_request
    from urllib3.exceptions import HTTPError

    had, tried = 0, 0
    while True:
        before = had
        headers = {"Range": f"bytes={had}-", "Accept-Encoding": "identity"} if had else None
        try:
            creds = get_default_host_creds(folder)  # type: ignore[no-untyped-call]
            answer = http_request(creds, f"/{quote(path)}", "GET", stream=True, extra_headers=headers)  # type: ignore[no-untyped-call]
            if had and answer.status_code == RANGE_BEHIND_THE_END:
                return
            augmented_raise_for_status(answer)  # type: ignore[no-untyped-call]
            # Not every server goes on where it is told to.
            skip = 0 if answer.status_code == PARTIAL else had
            for part in answer.iter_content():
                if len(part) > skip:
                    had += len(part) - skip
                    yield part[skip:]
                skip = max(0, skip - len(part))
        except (HTTPError, MlflowException):
            tried = 0 if had > before else tried + 1
            if tried >= ATTEMPTS:
                raise
            time.sleep(PAUSE_SECONDS * 2 ** (tried - 2) if tried > 1 else 0.0)
        else:
            return
