"""A bucket of Google Cloud Storage, by Google's client; credentials are the application's default ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from registry.adapters.version_files.clients import PAGE_OBJECTS, connection_broken, object_changed, quiet, said_by
from registry.errors import StoreUnreachable
from registry.model import StoredObject

CREDENTIALS = "workload identity, GOOGLE_APPLICATION_CREDENTIALS, or `gcloud auth application-default login`"
TRIES_SECONDS = 30.0
"""For which the client itself asks again."""


class GoogleBucket:
    """An `ObjectContainer`. `STORAGE_EMULATOR_HOST` names another server, as for every client of Google's."""

    def __init__(self, name: str) -> None:
        """Looks for credentials.

        Raises:
            StoreUnreachable: there are none.
        """
        from google.cloud.storage import Client
        from google.cloud.storage.retry import DEFAULT_RETRY

        quiet("google", "urllib3")
        self._name, self._retry = name, DEFAULT_RETRY.with_timeout(TRIES_SECONDS)
        with self._errors(""):
            self._client = Client()
            self._bucket = self._client.bucket(name)

    @classmethod
    def at(cls, address: str) -> tuple[GoogleBucket, str]:
        """The bucket, and the name of the folder, that `gs://BUCKET/FOLDER` means."""
        parts = urlsplit(address)
        return cls(parts.netloc), parts.path.strip("/")

    def objects(self, prefix: str) -> Iterator[tuple[str, int]]:
        with self._errors(prefix):
            for found in self._client.list_blobs(
                self._bucket, prefix=prefix, page_size=PAGE_OBJECTS, retry=self._retry
            ):
                yield found.name, int(found.size)

    def state(self, key: str) -> StoredObject:
        with self._errors(key):
            found = self._bucket.get_blob(key, retry=self._retry)
        if found is None:
            raise StoreUnreachable(f"{self._place(key)}: no such object", hint="check the address")
        return StoredObject(key=key, size_bytes=int(found.size), tag=str(found.generation))

    def part(self, found: StoredObject, begin: int, length: int) -> bytes:
        with self._errors(found.key):
            content = self._bucket.blob(found.key).download_as_bytes(
                start=begin,
                end=begin + length - 1,
                # As it is kept, also where it is kept compressed.
                raw_download=True,
                if_generation_match=int(found.tag),
                # Checksums are of whole objects.
                checksum=None,
                retry=self._retry,
            )
        return bytes(content)

    def put(self, key: str, file: Path) -> None:
        with self._errors(key):
            self._bucket.blob(key).upload_from_filename(str(file), retry=self._retry)

    def _place(self, key: str) -> str:
        return f"gs://{self._name}/{key}"

    @contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        from google.api_core.exceptions import GoogleAPIError, NotFound, PreconditionFailed
        from google.auth.exceptions import GoogleAuthError
        from requests.exceptions import RequestException

        place = self._place(key)
        try:
            yield
        except PreconditionFailed:
            raise object_changed(place) from None
        except NotFound:
            raise StoreUnreachable(f"{place}: no such bucket or object", hint="check the address") from None
        except GoogleAuthError as error:
            raise StoreUnreachable(f"{place}: {said_by(error)}", hint=CREDENTIALS) from None
        except (RequestException, ConnectionError) as error:
            raise connection_broken(place, error) from error
        except GoogleAPIError as error:
            raise StoreUnreachable(
                f"{place}: {said_by(error)}", hint=f"the account needs to list, read and write there: {CREDENTIALS}"
            ) from error
