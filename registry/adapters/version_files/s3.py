"""A bucket of S3, or of what speaks like it, by boto3; credentials are those of its standard chain."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from registry.adapters.version_files.clients import PAGE_OBJECTS, connection_broken, object_changed, quiet, said_by
from registry.errors import ObjectChanged, StoreUnreachable
from registry.model import StoredObject
from tidegate.core.errors import UsageError

if TYPE_CHECKING:
    from botocore.client import BaseClient

UPLOAD_ARGUMENTS, OWNER = "MLFLOW_S3_UPLOAD_EXTRA_ARGS", "MLFLOW_S3_EXPECTED_BUCKET_OWNER"
ADDRESSING, ENDPOINT, ANY_CERTIFICATE = (
    "MLFLOW_BOTO_CLIENT_ADDRESSING_STYLE",
    "MLFLOW_S3_ENDPOINT_URL",
    "MLFLOW_S3_IGNORE_TLS",
)
CHANGED = frozenset({"PreconditionFailed", "412"})
UNKNOWN = frozenset({"NoSuchBucket", "NoSuchKey", "404"})
CREDENTIALS = "credentials come from a role of the pod or the machine, AWS_PROFILE, or AWS_ACCESS_KEY_ID and its secret"
CONNECT_SECONDS, SILENCE_SECONDS = 10, 60


class S3Bucket:
    """An `ObjectContainer`, by the variables that MLflow's own client of S3 reads."""

    def __init__(self, name: str, environment: Mapping[str, str] = os.environ) -> None:
        """Nothing is asked yet.

        Raises:
            UsageError: a variable cannot be read.
        """
        quiet("boto3", "botocore", "s3transfer", "urllib3")
        self._name = name
        self._client = _client(environment)
        self._owner = {"ExpectedBucketOwner": owner} if (owner := environment.get(OWNER)) else {}
        self._upload = _arguments(environment.get(UPLOAD_ARGUMENTS))

    @classmethod
    def at(cls, address: str) -> tuple[S3Bucket, str]:
        """The bucket, and the key of the folder, that `s3://BUCKET/FOLDER` means."""
        parts = urlsplit(address)
        return cls(parts.netloc), parts.path.strip("/")

    def objects(self, prefix: str) -> Iterator[tuple[str, int]]:
        with self._errors(prefix):
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(
                Bucket=self._name, Prefix=prefix, PaginationConfig={"PageSize": PAGE_OBJECTS}, **self._owner
            ):
                for found in page.get("Contents", []):
                    yield found["Key"], int(found["Size"])

    def state(self, key: str) -> StoredObject:
        with self._errors(key):
            found = self._client.head_object(Bucket=self._name, Key=key, **self._owner)
        return StoredObject(key=key, size_bytes=int(found["ContentLength"]), tag=found["ETag"])

    def part(self, found: StoredObject, begin: int, length: int) -> bytes:
        asked = {"Key": found.key, "Range": f"bytes={begin}-{begin + length - 1}", "IfMatch": found.tag}
        with self._errors(found.key):
            return bytes(self._client.get_object(Bucket=self._name, **asked, **self._owner)["Body"].read())

    def put(self, key: str, file: Path) -> None:
        with self._errors(key):
            self._client.upload_file(str(file), self._name, key, ExtraArgs={**self._upload, **self._owner})

    @contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        from boto3.exceptions import S3UploadFailedError
        from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, IncompleteReadError

        place = f"s3://{self._name}/{key}"
        try:
            yield
        except ClientError as error:
            raise _refusal(place, error.response.get("Error", {})) from None
        except S3UploadFailedError as error:
            # It tells of what was refused below it.
            cause = error.__context__
            found = cause.response.get("Error", {}) if isinstance(cause, ClientError) else {"Message": said_by(error)}
            raise _refusal(place, found) from None
        except (HTTPClientError, IncompleteReadError) as error:
            raise connection_broken(place, error) from error
        except BotoCoreError as error:
            hint = CREDENTIALS if "redential" in type(error).__name__ else f"check {ENDPOINT} and AWS_REGION"
            raise StoreUnreachable(f"{place}: {said_by(error)}", hint=hint) from error


def _refusal(place: str, found: Mapping[str, Any]) -> StoreUnreachable | ObjectChanged:
    code, told = str(found.get("Code", "")), str(found.get("Message", ""))
    if code in CHANGED:
        return object_changed(place)
    if code in UNKNOWN:
        return StoreUnreachable(f"{place}: no such bucket or object", hint=f"check the address, and {ENDPOINT}")
    said = ": ".join(filter(None, (code, told[:200])))
    return StoreUnreachable(f"{place}: {said}", hint=f"who asks must list, read and write there; {CREDENTIALS}")


def _client(environment: Mapping[str, str]) -> BaseClient:
    import boto3
    from botocore.client import Config
    from botocore.exceptions import BotoCoreError

    config = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=SILENCE_SECONDS,
        signature_version="s3v4",
        s3={"addressing_style": environment.get(ADDRESSING) or "auto"},
    )
    anyone = environment.get(ANY_CERTIFICATE, "").lower() in {"true", "1"}
    try:
        return boto3.client(
            "s3", config=config, endpoint_url=environment.get(ENDPOINT) or None, verify=False if anyone else None
        )
    except (BotoCoreError, ValueError) as error:
        raise UsageError(
            f"S3 cannot be asked: {said_by(error)}", hint=f"check {ENDPOINT}, {ADDRESSING} and AWS_PROFILE"
        ) from None


def _arguments(written: str | None) -> dict[str, Any]:
    if not written:
        return {}
    try:
        found = json.loads(written)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UsageError(
            f"{UPLOAD_ARGUMENTS}: expected a JSON object", hint='such as {"ServerSideEncryption": "aws:kms"}'
        )
    return found
