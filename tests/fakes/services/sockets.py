"""Servers on this machine: those of others on a free port, one that takes posts, one that says exactly its bytes.

The last speaks TCP or TLS, and has certificates for it.
"""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import json
import os
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from fakes.services.http import QuietHandler, answering
from fakes.waiting import PATIENCE_SECONDS

from rollouts.adapters.sockets import free_port


def free_address() -> str:
    return f"127.0.0.1:{free_port()}"


def begun(
    command: Sequence[str], *, ready: str, log: Path, settings: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start `command`; returns once it answers at the URL `ready`.

    `settings` are environment variables besides our own.
    """
    environment = {**os.environ, **(settings or {})}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True, env=environment)
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not _answers(ready):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
    except BaseException:
        end(process)
        raise
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    """End what was begun, and wait for it."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(60)
    # Also what it started, and a server that takes its time: nothing may be left for the next test.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def running(
    command: Sequence[str], *, ready: str, log: Path, settings: Mapping[str, str] | None = None
) -> Iterator[None]:
    """While `command` runs; as `begun`."""
    process = begun(command, ready=ready, log=log, settings=settings)
    try:
        yield
    finally:
        end(process)


def _answers(url: str) -> bool:
    """Also one that wants to know who asks."""
    anyone = ssl._create_unverified_context() if url.startswith("https:") else None
    try:
        with urllib.request.urlopen(url, timeout=1, context=anyone):
            return True
    except urllib.error.HTTPError as error:
        return error.code in (401, 403)
    except (ssl.SSLError, ConnectionResetError):
        return url.startswith("https:")
    except OSError as error:
        return isinstance(getattr(error, "reason", None), ssl.SSLError)


@dataclass
class Posted:
    """Where to post, and what was posted."""

    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def receiving(path: str = "/T0/secret") -> Iterator[Posted]:
    """Answers 204 to every JSON document at `path`."""
    heard = Posted()

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path == path:
                heard.bodies.append(json.loads(body))
            self.answer(status=204 if self.path == path else 404)

    with answering(Handler) as address:
        heard.url = f"http://{address}{path}"
        yield heard


class Hang(Exception):
    """Say no more and keep the connection."""


class Reset(Exception):
    """End the connection as if the machine had died."""


Says = Callable[["Heard"], AsyncIterator[bytes]]


@dataclass
class Heard:
    """One request."""

    target: str
    """Path and query."""
    headers: dict[str, str]
    peer: str | None
    """The common name in the client's certificate."""


@dataclass
class RawServer:
    """What it heard; what it says next is the test's."""

    says: Says
    url: str = ""
    heard: list[Heard] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            while head := await _head(reader):
                self.heard.append(_heard(head, writer))
                async for piece in self.says(self.heard[-1]):
                    writer.write(piece)
                    await writer.drain()
        except Hang:
            await asyncio.sleep(3600)
        except Reset:
            writer.transport.abort()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def raw_server(says: Says, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[RawServer]:
    """Serve on a free port of the loopback."""
    raw = RawServer(says)
    server = await asyncio.start_server(raw.serve, "127.0.0.1", 0, ssl=tls)
    raw.url = f"http{'s' if tls else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield raw
    finally:
        server.close()
        for writer in raw.writers:
            writer.transport.abort()
        await asyncio.sleep(0)


def answer(body: Any, *, status: int = 200) -> bytes:
    """A whole answer with a JSON body."""
    content = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
        certificate.write_bytes(self.certificate)
        key.write_bytes(self.key)
        return certificate, key


class Authority:
    """Signs certificates that hold for a day."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("authority")
        self.certificate = _signed(self._name, self._key, self._name, self._key, authority=True)

    def pair(self, name: str, *, host: str | None = None) -> Pair:
        """For a user of that name, or for the server at `host`; the loopback's address is always in it."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _signed(_name(name), key, self._name, self._key, host=host)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return Pair(certificate, private)


def tls_of(folder: Path, authority: Authority, *, host: str | None = None, ask: bool = False) -> ssl.SSLContext:
    """What a server needs for TLS; with `ask` it wants a certificate of the one who comes."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.pair("server", host=host).write(folder, "server"))
    if ask:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=authority.certificate.decode())
    return context


async def _head(reader: asyncio.StreamReader) -> list[str]:
    try:
        return (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    except asyncio.IncompleteReadError:
        return []


def _heard(head: list[str], writer: asyncio.StreamWriter) -> Heard:
    headers = dict(line.split(": ", 1) for line in head[1:] if line)
    certificate = writer.get_extra_info("peercert") or {}
    names = dict(part[0] for part in certificate.get("subject", ()))
    return Heard(head[0].split(" ")[1], {k.lower(): v for k, v in headers.items()}, names.get("commonName"))


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _signed(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    authority: bool = False,
    host: str | None = None,
) -> bytes:
    now = datetime.datetime.now(datetime.UTC)
    names: list[x509.GeneralName] = (
        [x509.DNSName(host)] if host else [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    )
    public, issuer_public = key.public_key(), issuer_key.public_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_public), critical=False)
    )
    return builder.sign(issuer_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
