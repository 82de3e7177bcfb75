"""Object stores on this machine: moto's S3, an emulator of Google's, Azurite; each behind a proxy that cuts lines."""

from __future__ import annotations

import os
import select
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from urllib.request import Request, urlopen

from fakes.services.sockets import free_address, running

BUCKET = "models"
SECRET_KEY = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY"
S3_KEYS = {"AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": "eu-west-1"}
AZURITE = Path(os.environ.get("AZURITE") or Path(__file__).parents[3] / ".azurite") / "node_modules/.bin/azurite-blob"
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The one that everybody's Azurite has."""


@dataclass
class Line:
    """A proxy in front of a server, which breaks one connection when it is told to."""

    address: str
    cut_after: int | None = None
    """Bytes of answers, after which the line is cut once."""
    cuts: int = 0
    answered: int = 0
    """Bytes."""

    def cut(self, after: int) -> None:
        """Break the next connection over which more bytes than that come back."""
        self.cut_after, self.cuts, self.answered = after, 0, 0


@contextmanager
def line_to(upstream: str) -> Iterator[Line]:
    """A proxy to HOST:PORT, while the block lasts."""
    host, _, port = upstream.partition(":")

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection((host, int(port))) as server, suppress(OSError):
                _forward(self.request, server, line)

    with _Threads(("127.0.0.1", 0), Handler) as proxy:
        line = Line(f"127.0.0.1:{proxy.server_address[1]}")
        thread = Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield line
        finally:
            proxy.shutdown()
            thread.join()


class _Threads(ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False


def _forward(client: socket.socket, server: socket.socket, line: Line) -> None:
    came = 0
    while True:
        for ready in select.select([client, server], [], [])[0]:
            content = ready.recv(1 << 16)
            if not content:
                return
            if ready is client:
                server.sendall(content)
                continue
            came += len(content)
            line.answered += len(content)
            client.sendall(content)
            if line.cut_after is not None and came > line.cut_after:
                line.cut_after, line.cuts = None, line.cuts + 1
                return


@contextmanager
def s3(folder: Path) -> Iterator[tuple[Line, dict[str, str]]]:
    """Moto's server with an empty bucket; the line to it, and the variables by which it is found."""
    import boto3

    address = free_address()
    host, port = address.split(":")
    command = [sys.executable, "-m", "moto.server", "-H", host, "-p", port]
    with running(command, ready=f"http://{address}/moto-api/", log=folder / "moto.log"), line_to(address) as line:
        url = f"http://{line.address}"
        keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "eu-west-1"}
        boto3.client("s3", endpoint_url=f"http://{address}", **keys).create_bucket(
            Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"}
        )
        yield line, {"MLFLOW_S3_ENDPOINT_URL": url, "AWS_ENDPOINT_URL": url, **S3_KEYS}


@contextmanager
def gcs(folder: Path) -> Iterator[tuple[Line, dict[str, str]]]:
    """The same of gcp-storage-emulator."""
    address = free_address()
    host, port = address.split(":")
    command = [str(Path(sys.executable).with_name("gcp-storage-emulator")), "start", "--in-memory"]
    command += ["--host", host, "--port", port, "--default-bucket", BUCKET]
    with running(command, ready=f"http://{address}/", log=folder / "gcs.log"), line_to(address) as line:
        yield line, {"STORAGE_EMULATOR_HOST": f"http://{line.address}"}


@contextmanager
def azure(folder: Path) -> Iterator[tuple[Line, dict[str, str]]]:
    """The same of Azurite."""
    from azure.storage.blob import BlobServiceClient

    address = free_address()
    host, port = address.split(":")
    command = [str(AZURITE), "--blobHost", host, "--blobPort", port, "--silent", "--inMemoryPersistence"]
    command += ["--disableTelemetry", "--disableProductStyleUrl", "--skipApiVersionCheck"]
    ready = f"http://{address}/{AZURE_ACCOUNT}?comp=list"
    with running(command, ready=ready, log=folder / "azurite.log"), line_to(address) as line:
        BlobServiceClient.from_connection_string(connection_string(address)).create_container(BUCKET)
        yield line, {"AZURE_STORAGE_CONNECTION_STRING": connection_string(line.address)}


def connection_string(address: str, key: str = AZURE_KEY) -> str:
    """As the portal shows it, with another place where blobs are."""
    return (
        f"DefaultEndpointsProtocol=http;AccountName={AZURE_ACCOUNT};AccountKey={key};"
        f"BlobEndpoint=http://{address}/{AZURE_ACCOUNT};"
    )


def require_known_keys(line: Line) -> None:
    """Let moto look at who asks, from now on; it lets everybody in otherwise."""
    plain = {"Content-Type": "text/plain"}
    with urlopen(Request(f"http://{line.address}/moto-api/reset-auth", b"0", plain), timeout=10):
        return
