"""The current credential for an API server, got again before it expires and after a 401."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from rollouts.errors import NoAccess
from tidegate.core.clock import Clock

log = logging.getLogger(__name__)

EARLY = timedelta(seconds=30)
"""How long before its end a credential is renewed: a request in flight must not outlive it, nor clocks that differ."""


@dataclass(frozen=True)
class ApiServer:
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

    server: ApiServer
    authorization: str | None = field(default=None, repr=False)
    """The header, never to be shown; None when the client certificate says it all."""
    good_until: datetime | None = None
    """When it must be got again; None when nobody said."""


class CredentialProvider:
    """Concurrent requests share one renewal."""

    def __init__(self, source: Callable[[], Awaitable[Credential]], clock: Clock) -> None:
        """`source` gets it again each time: it reads the files again and runs the plugin again.

        Its `NoAccess` is raised to the one who asks for a credential when none is at hand.
        """
        self._source = source
        self._clock = clock
        self._credential: Credential | None = None
        self._renewal = asyncio.Lock()

    async def credential(self, refused: Credential | None = None) -> Credential:
        """A credential that holds for a while yet; the one at hand when no other can be got.

        Another one than `refused`, which the server did not take: got once, however many requests were refused.
        """
        async with self._renewal:
            found = self._credential
            if found is None or found is refused:
                found = await self._source()
            elif found.good_until is not None and found.good_until - EARLY <= self._clock.now():
                try:
                    found = await self._source()
                except NoAccess as error:
                    # It may hold for the rest of its time; should it not, the server says 401.
                    log.warning("%s", error)
            self._credential = found
            return found
