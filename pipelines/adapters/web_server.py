"""A server of ours within a process that has more to do: where it listens, and what one client of it may hold."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from pipelines.triggers.webhooks import weakness
from tidegate.core.adapters.asgi import serving
from tidegate.core.errors import OutsideError, UsageError
from tidegate.core.model import Value
from tidegate.core.process import host_and_port
from tidegate.core.text import is_loopback


class Connections(Value):
    """How many are open, and how long one may say nothing that makes sense."""

    all: int = 256
    """At once; well below the files that a process may have open."""
    from_one: int = 80
    """Of one address; a proxy is one."""
    header_seconds: float = 10.0
    """From the first byte of a request to the end of its header, and from a connection to its first request."""


def bounded(limits: Connections) -> type[H11Protocol]:
    """Uvicorn's protocol with these limits; who meets one is cut off."""
    open_now: Counter[str] = Counter()

    class Bounded(H11Protocol):
        """One connection."""

        _address: str | None = None
        _late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
            super().connection_made(transport)
            peer = transport.get_extra_info("peername")
            address = str(peer[0]) if peer else ""
            if open_now.total() >= limits.all or open_now[address] >= limits.from_one:
                transport.abort()
                return
            self._address = address
            open_now[address] += 1
            self._expect_header()

        def connection_lost(self, exc: Exception | None) -> None:
            if self._address is not None:
                open_now[self._address] -= 1
                self._address = None
            self._header_came()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._answering():
                self._header_came()
            elif self._late is None:
                self._expect_header()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            # What came behind the answer may be the half of a next request; silence is uvicorn's own to end.
            if not self._answering() and self.conn.trailing_data[0]:
                self._expect_header()

        def _answering(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def _expect_header(self) -> None:
            self._header_came()
            self._late = self.loop.call_later(limits.header_seconds, self._cut)

        def _header_came(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

        def _cut(self) -> None:
            self._late = None
            if not self._answering():
                self.transport.abort()

    return Bounded


GRACE_SECONDS = 10
"""That requests in flight have to end."""


@dataclass(frozen=True)
class ListenOptions:
    """As the options say it."""

    address: str
    token: Path | None = None
    hosts: Sequence[str] = ()
    certificate: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise UsageError("--tls-cert without --tls-key, or the other way round", hint="give both")

    @property
    def is_local(self) -> bool:
        """Whether `address` is reached from this machine alone."""
        return is_loopback(host_and_port(self.address)[0])

    @property
    def password(self) -> str | None:
        """What one who looks must know; None where anyone may.

        Raises:
            UsageError: it cannot be read or could be guessed.
        """
        if self.token is None:
            return None
        try:
            token = self.token.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "no text"
            raise UsageError(
                f"--token {self.token}: {str(reason).lower()}",
                hint="name a file with the token in its first line",
            ) from error
        if weak := weakness(token):
            hint = "for instance what `openssl rand -hex 32` prints"
            raise UsageError(f"--token {self.token}: {weak}", hint=hint)
        return token

    def names(self, registered: str | None) -> frozenset[str]:
        """What it is called; MLflow's way here is one of its names."""
        own = {urlsplit(registered).hostname or ""} if registered else set()
        return frozenset({*self.hosts, *own} - {""})


@dataclass(frozen=True)
class Listener:
    """A socket, and how it answers."""

    options: ListenOptions
    socket: socket.socket
    limits: Connections = field(default_factory=Connections)

    @property
    def address(self) -> str:
        """`http://HOST:PORT`, or `https://`."""
        host, port = self.socket.getsockname()[:2]
        return f"http{'s' if self.options.key else ''}://{f'[{host}]' if ':' in host else host}:{port}"

    @asynccontextmanager
    async def answering(self, app: Starlette) -> AsyncIterator[None]:
        """Answer requests within the context; those that came before its end are still answered.

        Raises:
            UsageError: the certificate or its key cannot be used.
        """
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
            ws="none",
            http=bounded(self.limits),
            # Who the next proxy says that a client is, anybody could say.
            proxy_headers=False,
            ssl_certfile=self.options.certificate,
            ssl_keyfile=self.options.key,
        )
        try:
            config.load()
        except OSError as error:
            raise UsageError(
                f"the certificate or its key cannot be used: {error.strerror or error}",
                hint="name both as PEM files that this user can read",
            ) from error
        async with serving(config, self.socket):
            yield


@contextmanager
def listening(listen: ListenOptions, *, guarded: bool = False) -> Iterator[Listener]:
    """A socket at its address, closed at the end; port 0 is a free one.

    Raises:
        UsageError: it is to be `guarded`, and others could ask it without having to say who they are.
        OutsideError: nobody can listen there.
    """
    if guarded and not listen.is_local and listen.password is None:
        raise UsageError(
            f"{listen.address} would be open to anyone who can reach it",
            hint="give --token FILE, or listen on 127.0.0.1",
        )
    host, port = host_and_port(listen.address)
    try:
        heard = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise OutsideError(
            f"cannot listen on {host}:{port}: {error.strerror}", hint="name another --address"
        ) from error
    with heard:
        yield Listener(listen, heard)
