"""Object stores on this machine: moto's S3, an emulator of Google's, Azurite."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

from fakes.services.sockets import free_address, running

BUCKET = "models"
SECRET_KEY = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY"
S3_KEYS = {"AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": "eu-west-1"}
AZURITE = Path(os.environ.get("AZURITE") or Path(__file__).parents[3] / ".azurite") / "node_modules/.bin/azurite-blob"
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The one that everybody's Azurite has."""


@contextmanager
def s3(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Moto's server with an empty bucket; its address, and the variables by which it is found."""
    import boto3

    address = free_address()
    host, port = address.split(":")
    command = [sys.executable, "-m", "moto.server", "-H", host, "-p", port]
    with running(command, ready=f"http://{address}/moto-api/", log=folder / "moto.log"):
        url = f"http://{address}"
        keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "eu-west-1"}
        boto3.client("s3", endpoint_url=url, **keys).create_bucket(
            Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"}
        )
        yield address, {"MLFLOW_S3_ENDPOINT_URL": url, "AWS_ENDPOINT_URL": url, **S3_KEYS}


@contextmanager
def gcs(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The same of gcp-storage-emulator."""
    address = free_address()
    host, port = address.split(":")
    command = [str(Path(sys.executable).with_name("gcp-storage-emulator")), "start", "--in-memory"]
    command += ["--host", host, "--port", port, "--default-bucket", BUCKET]
    with running(command, ready=f"http://{address}/", log=folder / "gcs.log"):
        yield address, {"STORAGE_EMULATOR_HOST": f"http://{address}"}


@contextmanager
def azure(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The same of Azurite."""
    from azure.storage.blob import BlobServiceClient

    address = free_address()
    host, port = address.split(":")
    command = [str(AZURITE), "--blobHost", host, "--blobPort", port, "--silent", "--inMemoryPersistence"]
    command += ["--disableTelemetry", "--disableProductStyleUrl", "--skipApiVersionCheck"]
    ready = f"http://{address}/{AZURE_ACCOUNT}?comp=list"
    with running(command, ready=ready, log=folder / "azurite.log"):
        BlobServiceClient.from_connection_string(connection_string(address)).create_container(BUCKET)
        yield address, {"AZURE_STORAGE_CONNECTION_STRING": connection_string(address)}


def connection_string(address: str, key: str = AZURE_KEY) -> str:
    """As the portal shows it, with another place where blobs are."""
    return (
        f"DefaultEndpointsProtocol=http;AccountName={AZURE_ACCOUNT};AccountKey={key};"
        f"BlobEndpoint=http://{address}/{AZURE_ACCOUNT};"
    )


def require_known_keys(address: str) -> None:
    """Let moto look at who asks, from now on; it lets everybody in otherwise."""
    plain = {"Content-Type": "text/plain"}
    with urlopen(Request(f"http://{address}/moto-api/reset-auth", b"0", plain), timeout=10):
        return
