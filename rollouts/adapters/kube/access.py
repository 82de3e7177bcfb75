"""Who we are to an API server, renewed before it expires and once more when the server says 401."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Self

from rollouts.errors import NoAccess
from tidegate.core.clock import Clock

log = logging.getLogger(__name__)

EARLY = timedelta(seconds=30)
"""How long before its end a credential is renewed: a request in flight must not outlive it, nor clocks that differ."""


@dataclass(frozen=True)
class Server:
    """Where an API server is and how to trust it; two that are equal can share connections."""

    url: str
    ca_file: str | None = None
    """Whom to trust; None for the authorities of this machine."""
    verify: bool = True
    tls_name: str | None = None
    """The name in the server's certificate, when it is not the one in `url`."""
    proxy: str | None = field(default=None, repr=False)
    """May carry a password."""
    certificate_file: str | None = None
    key_file: str | None = None
    fingerprint: str = ""
    """Changes with what is in the files, which are rotated in place."""


@dataclass(frozen=True)
class Credential:
    """What the kubeconfig, a plugin or the service account says now."""

    server: Server
    authorization: str | None = field(default=None, repr=False)
    """The header, never to be shown; None when the client certificate says it all."""
    good_until: datetime | None = None
    """When it must be got again; None when nobody said."""


class Access:
    """The credential of the moment; many requests share one renewal."""

    def __init__(self, source: Callable[[], Awaitable[Credential]], clock: Clock) -> None:
        """`source` gets it anew each time: it reads the files again and runs the plugin again.

        Its `NoAccess` is raised to whoever asks for a credential when none is at hand.
        """
        self._source = source
        self._clock = clock
        self._credential: Credential | None = None
        self._renewal = asyncio.Lock()

    @classmethod
    def fixed(cls, url: str, *, token: str | None = None, clock: Clock) -> Self:
        """Access that never changes, for a server that trusts the address or a token."""
        credential = Credential(Server(url), f"Bearer {token}" if token else None)

        async def same() -> Credential:
            return credential

        return cls(same, clock)

    async def credential(self) -> Credential:
        """A credential that holds for a while yet; the one at hand when no other can be got."""
        async with self._renewal:
            if self._credential is None:
                self._credential = await self._source()
            elif self._ends_soon(self._credential):
                try:
                    self._credential = await self._source()
                except NoAccess as error:
                    # It may hold for the rest of its time; should it not, the server says 401.
                    log.warning("%s", error)
            return self._credential

    async def renewed(self, refused: Credential) -> Credential:
        """Another one, after the server did not take `refused`; got once, however many requests were refused."""
        async with self._renewal:
            if self._credential is None or self._credential is refused:
                self._credential = await self._source()
            return self._credential

    def _ends_soon(self, credential: Credential) -> bool:
        return credential.good_until is not None and credential.good_until - EARLY <= self._clock.now()
