"""A container of Azure Blob Storage, by Azure's client; also where it is a file system of Data Lake Storage."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from registry.adapters.version_files.clients import PAGE_OBJECTS, connection_broken, object_changed, quiet, said_by
from registry.errors import StoreUnreachable
from registry.model import StoredObject
from tidegate.core.errors import UsageError

if TYPE_CHECKING:
    from azure.storage.blob import BlobServiceClient

STRING, KEY, SIGNATURE = "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_SAS_TOKEN"
CREDENTIALS = f"workload or managed identity, `az login`, {STRING}, {KEY} or {SIGNATURE}"
_PLACE = re.compile(
    r"(?P<container>[^@]+)@(?P<account>[a-z0-9-]+)\.(blob|dfs)\."
    # Nobody else gets a token: the address is what somebody wrote into MLflow.
    r"(?P<cloud>core\.windows\.net|core\.chinacloudapi\.cn|core\.usgovcloudapi\.net|fabric\.microsoft\.com)"
)
FIRST_PAUSE_SECONDS, RETRIES, CONNECT_SECONDS = 1, 3, 10
FOLDER = "hdi_isfolder"
"""In the metadata of what is no file, where a container is a file system."""


class AzureContainer:
    """An `ObjectContainer`, by the variables that MLflow's own client of Azure reads."""

    def __init__(self, account: str, name: str, environment: Mapping[str, str] = os.environ) -> None:
        """Nothing is asked yet; `account` is where it answers, such as `https://ours.blob.core.windows.net`.

        Raises:
            UsageError: a variable cannot be read.
        """
        quiet("azure", "msal", "urllib3")
        self._container = _client(account, environment).get_container_client(name)
        self.url = f"{account}/{name}"

    @classmethod
    def at(cls, address: str) -> tuple[AzureContainer, str]:
        """The container, and the name of the folder, that `wasbs://` or `abfss://CONTAINER@ACCOUNT.../FOLDER` means.

        Raises:
            UsageError: it is not one of Azure's.
        """
        parts = urlsplit(address)
        found = _PLACE.fullmatch(parts.netloc)
        if found is None:
            raise UsageError(
                f"{parts.scheme}://{parts.hostname}: is no address of Azure's",
                hint="such as wasbs://CONTAINER@ACCOUNT.blob.core.windows.net/FOLDER, or abfss://...dfs.core.windows.net",
            )
        # As MLflow reads each of the two.
        path = unquote(parts.path) if parts.scheme.startswith("abfs") else parts.path
        return cls(f"https://{found['account']}.blob.{found['cloud']}", found["container"]), path.strip("/")

    def objects(self, prefix: str) -> Iterator[tuple[str, int]]:
        with self._errors(prefix):
            for found in self._container.list_blobs(
                name_starts_with=prefix, include=["metadata"], results_per_page=PAGE_OBJECTS
            ):
                if (found.metadata or {}).get(FOLDER, "").lower() != "true":
                    yield found.name, int(found.size)

    def state(self, key: str) -> StoredObject:
        with self._errors(key):
            found = self._container.get_blob_client(key).get_blob_properties()
        return StoredObject(key=key, size_bytes=int(found.size), tag=str(found.etag))

    def part(self, found: StoredObject, begin: int, length: int) -> bytes:
        from azure.core import MatchConditions

        unchanged: dict[str, Any] = {"etag": found.tag, "match_condition": MatchConditions.IfNotModified}
        with self._errors(found.key):
            return bytes(self._container.download_blob(found.key, offset=begin, length=length, **unchanged).readall())

    def put(self, key: str, file: Path) -> None:
        with self._errors(key), file.open("rb") as content:
            self._container.upload_blob(key, content, overwrite=True)

    @contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        from azure.core.exceptions import (
            AzureError,
            ClientAuthenticationError,
            IncompleteReadError,
            ResourceModifiedError,
            ResourceNotFoundError,
            ServiceResponseError,
        )

        place = f"{self.url}/{key}"
        try:
            yield
        except ResourceModifiedError:
            raise object_changed(place) from None
        except ResourceNotFoundError:
            raise StoreUnreachable(f"{place}: no such container or object", hint="check the address") from None
        except ClientAuthenticationError as error:
            raise StoreUnreachable(f"{place}: {said_by(error)}", hint=CREDENTIALS) from None
        except (ServiceResponseError, IncompleteReadError) as error:
            raise connection_broken(place, error) from error
        except AzureError as error:
            raise StoreUnreachable(
                f"{place}: {said_by(error)}", hint=f"check the address, and who asks: {CREDENTIALS}"
            ) from error


def _client(account: str, environment: Mapping[str, str]) -> BlobServiceClient:
    """As MLflow chooses: a connection string goes first, then a key, a shared access signature, and an identity."""
    from azure.storage.blob import BlobServiceClient

    patience: dict[str, Any] = {
        "connection_timeout": CONNECT_SECONDS,
        "retry_total": RETRIES,
        "initial_backoff": FIRST_PAUSE_SECONDS,
    }
    if written := environment.get(STRING):
        try:
            return BlobServiceClient.from_connection_string(written, **patience)
        except ValueError:
            # Its own words may hold what was written.
            raise UsageError(
                f"{STRING}: is no connection string", hint="copy it from the account's access keys"
            ) from None
    credential: Any = environment.get(KEY) or environment.get(SIGNATURE)
    if credential is None:
        from azure.identity import DefaultAzureCredential

        credential = DefaultAzureCredential()
    return BlobServiceClient(account, credential=credential, **patience)
