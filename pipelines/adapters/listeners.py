"""Where a server of ours listens: its sockets, its certificate, and who may ask it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import socket
from urllib.parse import urlsplit

from starlette.applications import Starlette

from pipelines.adapters.web_server import Tls, address_of, answering, listening
from pipelines.triggers.webhooks import weakness
from tidegate.core.errors import UsageError
from tidegate.core.process import host_and_port
from tidegate.core.text import is_loopback

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class ListenOptions:
    """As the options say it."""

    address: str
    page: str | None = None
    """Where the page is; as `address` on the loopback, else next to it on the loopback."""
    token: Path | None = None
    hosts: Sequence[str] = ()
    certificate: Path | None = None
    key: Path | None = None
    token_option: str = "--page-token"
    """What the option is called that gave `token`."""

    @property
    def is_local(self) -> bool:
        """Whether `address` is reached from this machine alone."""
        return is_loopback(host_and_port(self.address)[0])

    @property
    def tls(self) -> Tls | None:
        """What both addresses prove themselves with.

        Raises:
            UsageError: one of the two files is missing.
        """
        if (self.certificate is None) != (self.key is None):
            raise UsageError("--tls-cert without --tls-key, or the other way round", hint="give both")
        return Tls(self.certificate, self.key) if self.certificate and self.key else None

    @property
    def password(self) -> str | None:
        """What one who looks must know; None where anyone may.

        Raises:
            UsageError: it cannot be read or could be guessed.
        """
        return _token(self.token, self.token_option)

    def names(self, registered: str | None) -> frozenset[str]:
        """What the page is called; MLflow's way here is one of its names."""
        own = {urlsplit(registered).hostname or ""} if registered else set()
        return frozenset({*self.hosts, *own} - {""})


@dataclass(frozen=True)
class Listener:
    """A socket, and how it answers."""

    options: ListenOptions
    socket: socket

    @property
    def address(self) -> str:
        """`http://HOST:PORT`, or `https://`."""
        return address_of(self.socket, tls=self.options.tls)

    def answering(self, app: Starlette) -> AbstractAsyncContextManager[None]:
        """Answer requests within the context."""
        return answering(app, self.socket, tls=self.options.tls)


@contextmanager
def guarded_listener(listen: ListenOptions) -> Iterator[Listener]:
    """A socket for an application without a page, closed at the end.

    Raises:
        UsageError: others could ask it, and nobody would have to say who he is.
        OutsideError: nobody can listen there.
    """
    host, port = host_and_port(listen.address)
    if not is_loopback(host) and listen.password is None:
        raise UsageError(
            f"{listen.address} would be open to anyone who can reach it",
            hint=f"give {listen.token_option} FILE, or listen on 127.0.0.1",
        )
    with listening(host, port) as heard:
        yield Listener(listen, heard)


@contextmanager
def webhooks_and_page(listen: ListenOptions) -> Iterator[tuple[Listener, Listener]]:
    """Where webhooks come, and where the page is, closed at the end; the same where both have one address.

    Raises:
        UsageError: the page would be shown to others without a login.
        OutsideError: nobody can listen there.
    """
    host, port = host_and_port(listen.address)
    page = host_and_port(listen.page) if listen.page else (host, port) if is_loopback(host) else _next_port(port)
    if not is_loopback(page[0]) and listen.password is None:
        raise UsageError(
            f"the page at {page[0]}:{page[1]} would be open to anyone who can reach it",
            hint="give --page-token FILE, or --page 127.0.0.1:PORT with a proxy next to it that people log in at",
        )
    with ExitStack() as stack:
        webhooks = Listener(listen, stack.enter_context(listening(host, port)))
        yield webhooks, webhooks if page == (host, port) else Listener(listen, stack.enter_context(listening(*page)))


def _next_port(port: int) -> tuple[str, int]:
    return LOOPBACK, port + 1 if 0 < port < 65535 else 0


def _token(path: Path | None, option: str) -> str | None:
    if path is None:
        return None
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "no text"
        raise UsageError(
            f"{option} {path}: {str(reason).lower()}", hint="name a file with the token in its first line"
        ) from error
    if weak := weakness(token):
        raise UsageError(f"{option} {path}: {weak}", hint="for instance what `openssl rand -hex 32` prints")
    return token
