"""A watch that does not end: a list, then a stream from it, then a stream from where that one ended, and so on.

What ends a stream, and what follows:

====================================  =====================================================
the server ends it, as it always does  a stream from the last version
it is cut, or silent for too long      the same; bookmarks keep that version fresh
410, or any failure told as an event   a new list, and the difference is told
429, 5xx, 401, nobody there            the same stream again, later
another refusal                        a new list; before the first one was told: its error
====================================  =====================================================

Before each new try there is a pause that doubles while nothing at all is heard.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from rollouts.errors import (
    ApiError,
    FleetError,
    Forbidden,
    Gone,
    Invalid,
    NoAccess,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from rollouts.kube.known import Known
from rollouts.kube.model import Change, Listed, Request
from rollouts.kube.requests import stream
from rollouts.kube.retrying import Backoff, asked_pause
from rollouts.kube.status import error_of
from tidegate.core.clock import Clock

STREAM_SECONDS = 300
"""How long a stream is asked for, up to twice as long by chance, as client-go does; then it is asked for again."""

SILENCE_SECONDS = 90.0
"""An API server sends a bookmark each minute: silence for longer means a dead connection that nobody closed."""

LASTING = (Invalid, Unauthorized, Forbidden, NotFound, NoAccess)
"""What would be the same in a minute, so that whoever begins a watch must hear of it."""

AWAY_AFTER = 3
"""Failures in a row that are worth a line in the log; cut streams are daily life."""

log = logging.getLogger(__name__)

Lists = Callable[[Request], Awaitable[Listed]]
Streams = Callable[[Request, float], AbstractAsyncContextManager[AsyncIterator[bytes]]]


async def watching(
    whole: Request, *, lists: Lists, streams: Streams, clock: Clock, chance: Callable[[], float], backoff: Backoff
) -> AsyncGenerator[Change, None]:
    """What happens in the collection `whole`, each change once, until it is closed."""
    known, failures, away = Known(), 0, False
    while True:
        trouble, opened, heard = None, clock.monotonic(), False
        try:
            if not known.version:
                for change in known.listed(await lists(whole)):
                    yield change
            seconds = round(STREAM_SECONDS * (1 + chance()))
            async with streams(stream(whole, since=known.version, seconds=seconds), SILENCE_SECONDS) as lines:
                opened = clock.monotonic()
                if away:
                    log.warning("the watch of %s is back", whole.resource.plural)
                    away = False
                async for line in lines:
                    for change in _changes(known, line, whole):
                        yield change
                    heard = True
        except FleetError as error:
            if isinstance(error, LASTING) and not known.synced:
                raise
            if _needs_list(error):
                known.expire()
            trouble = error
        lived = heard or clock.monotonic() - opened > backoff.most_seconds
        failures = 1 if lived else failures + 1
        if trouble and failures == AWAY_AFTER:
            log.warning("the watch of %s is away: %s", whole.resource.plural, trouble.message)
            away = True
        await clock.sleep(max(backoff.pause(failures, chance()), asked_pause(trouble)))


def _changes(known: Known, line: bytes, whole: Request) -> list[Change]:
    """What a line of the stream changes.

    Raises:
        ApiError: when the server says so in an event.
        Unreachable: when the line is no event; it was cut, or something else than an API server speaks.
    """
    try:
        event = json.loads(line)
        if event["type"] != "ERROR":
            return known.told(event["type"], event["object"])
    except (ValueError, KeyError, TypeError) as error:
        raise Unreachable(f"the watch of {whole.resource.plural} was cut within an event") from error
    failure = error_of(f"the watch of {whole.resource.plural}", event["object"])
    if not isinstance(failure, TooManyRequests):
        # The stream failed at an event: from the same version it would fail at it again.
        known.expire()
    raise failure


def _needs_list(error: FleetError) -> bool:
    """Whether the same stream would only be refused again."""
    refused = isinstance(error, ApiError) and error.status < 500 and error.status not in {401, 429}
    return refused or isinstance(error, Gone)
