"""A watch that does not end: a list, then a stream from it, then a stream from where that one ended, and so on.

What ends a stream, and what follows:

====================================  =====================================================
the server ends it, as it always does  a stream from the last version
it is cut, or silent for too long      the same; bookmarks keep that version fresh
410, or any failure sent as an event   a new list, and the difference is emitted
429, 5xx, 401, nobody there            the same stream again, later
another refusal                        a new list; before the first one was emitted: its error
====================================  =====================================================

Before each new try there is a pause that doubles while nothing at all is received.

Rules of the API server that the cache stands on: events of one watch come in the order of their resource versions; a
deletion carries the version at which it happened; versions of one resource can be compared as whole numbers (promised
since Kubernetes 1.35, KEP-5504, and so since etcd 3). Should a version be no number, only equality counts.
"""

from __future__ import annotations

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
from rollouts.kube.model import ObjectList, Request, WatchEvent, WatchEventType
from rollouts.kube.requests import error_of, watch_stream
from rollouts.kube.retry import Backoff, requested_pause
from tidegate.core.clock import Clock
from tidegate.core.model import Json
from tidegate.core.text import json_of

Key = tuple[str, str]
"""Namespace and name."""


class WatchCache:
    """The objects of a watch and the version they are at (an informer's store): emits each change exactly once."""

    def __init__(self) -> None:
        self.version = ""
        """A stream from here misses nothing; empty when only a new list can help."""
        self.synced = False
        """Whether a complete list was emitted."""
        self._objects: dict[Key, Json] = {}
        """Of each object what a missed deletion is reported with: no spec and no status, since there may be many."""

    def replace(self, listed: ObjectList) -> list[WatchEvent]:
        """What a fresh list changes: everything at first; after a gap the difference, deletions first."""
        now = {_key(item): item for item in listed.items}
        gone = [key for key in self._objects if key not in now]
        changes = [WatchEvent(kind=WatchEventType.DELETED, object=self._objects.pop(key)) for key in gone]
        for item in listed.items:
            changes += self._existing(item)
        kind = WatchEventType.BOOKMARK if self.synced else WatchEventType.SYNCED
        self.version, self.synced = listed.resource_version, True
        return [*changes, _mark(kind, self.version)]

    def apply(self, kind: str, item: Json) -> list[WatchEvent]:
        """What an event of the stream changes; nothing when it is a repetition.

        Raises:
            ValueError: when it is no event of a watch; nothing is taken from it.
        """
        try:
            event, version = WatchEventType(kind), item["metadata"]["resourceVersion"]
            key = ("", "") if event is WatchEventType.BOOKMARK else _key(item)
        except (KeyError, TypeError) as error:
            raise ValueError(f"an event of kind {kind} has no {error}") from error
        still = event is WatchEventType.BOOKMARK and version == self.version
        if not (still or _later(version, self.version)):
            return []
        self.version = version
        if event is WatchEventType.BOOKMARK:
            return [_mark(event, version)]
        if event is WatchEventType.DELETED:
            return [WatchEvent(kind=event, object=item)] if self._objects.pop(key, None) else []
        return self._existing(item)

    def invalidate(self) -> None:
        """The version is too old for the server: only a new list can help."""
        self.version = ""

    def _existing(self, item: Json) -> list[WatchEvent]:
        """An object that exists: new, changed, the same, or another of the name of one whose end was missed."""
        key, before = _key(item), self._objects.get(_key(item))
        if before is None:
            changes = [WatchEvent(kind=WatchEventType.ADDED, object=item)]
        elif _meta(before, "uid") != _meta(item, "uid"):
            changes = [
                WatchEvent(kind=WatchEventType.DELETED, object=before),
                WatchEvent(kind=WatchEventType.ADDED, object=item),
            ]
        elif _meta(before, "resourceVersion") != _meta(item, "resourceVersion"):
            changes = [WatchEvent(kind=WatchEventType.MODIFIED, object=item)]
        else:
            return []
        self._objects[key] = _remains(item)
        return changes


def _mark(kind: WatchEventType, version: str) -> WatchEvent:
    return WatchEvent(kind=kind, object={"metadata": {"resourceVersion": version}})


def _key(item: Json) -> Key:
    meta = item["metadata"]
    return meta.get("namespace", ""), meta["name"]


def _meta(item: Json, field: str) -> str | None:
    value = item["metadata"].get(field)
    return None if value is None else str(value)


def _remains(item: Json) -> Json:
    meta = item["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "labels", "ownerReferences")
    return {
        **{field: item[field] for field in ("apiVersion", "kind") if field in item},
        "metadata": {field: meta[field] for field in kept if field in meta},
    }


def _later(version: str, than: str) -> bool:
    """Whether a version is after another; unlike ones that are no numbers count as later."""
    if version.isdecimal() and than.isdecimal():
        return int(version) > int(than)
    return version != than


STREAM_SECONDS = 300
"""How long a stream is asked for, up to twice as long by chance, as client-go does; then it is asked for again."""

SILENCE_SECONDS = 90.0
"""An API server sends a bookmark each minute: silence for longer means a dead connection that nobody closed."""

LASTING = (Invalid, Unauthorized, Forbidden, NotFound, NoAccess)
"""What would be the same in a minute, so that the one who begins a watch must hear of it."""

AWAY_AFTER = 3
"""Failures in a row that are worth a line in the log; cut streams are daily life."""

log = logging.getLogger(__name__)

ListAll = Callable[[Request], Awaitable[ObjectList]]
OpenStream = Callable[[Request, float], AbstractAsyncContextManager[AsyncIterator[bytes]]]


async def watch_events(
    whole: Request,
    *,
    list_all: ListAll,
    open_stream: OpenStream,
    clock: Clock,
    chance: Callable[[], float],
    backoff: Backoff,
) -> AsyncGenerator[WatchEvent, None]:
    """Every change of the collection `whole`, each once, until the generator is closed."""
    cache, failures, away = WatchCache(), 0, False
    while True:
        failure, opened, received = None, clock.monotonic(), False
        try:
            if not cache.version:
                for change in cache.replace(await list_all(whole)):
                    yield change
            seconds = round(STREAM_SECONDS * (1 + chance()))
            async with open_stream(watch_stream(whole, since=cache.version, seconds=seconds), SILENCE_SECONDS) as lines:
                opened = clock.monotonic()
                if away:
                    log.warning("the watch of %s is back", whole.resource.plural)
                    away = False
                async for line in lines:
                    for change in _changes(cache, line, whole):
                        yield change
                    received = True
        except FleetError as error:
            if isinstance(error, LASTING) and not cache.synced:
                raise
            if _needs_list(error):
                cache.invalidate()
            failure = error
        lived = received or clock.monotonic() - opened > backoff.most_seconds
        failures = 1 if lived else failures + 1
        if failure and failures == AWAY_AFTER:
            log.warning("the watch of %s is away: %s", whole.resource.plural, failure.message)
            away = True
        await clock.sleep(max(backoff.pause(failures, chance()), requested_pause(failure)))


def _changes(cache: WatchCache, line: bytes, whole: Request) -> list[WatchEvent]:
    """What a line of the stream changes.

    Raises:
        ApiError: when the server says so in an event.
        Unreachable: when the line is no event; it was cut, or something else than an API server speaks.
    """
    try:
        event = json_of(line)
        if event["type"] != "ERROR":
            return cache.apply(event["type"], event["object"])
    except (ValueError, KeyError, TypeError) as error:
        raise Unreachable(f"the watch of {whole.resource.plural} was cut within an event", hint="try again") from error
    failure = error_of(f"the watch of {whole.resource.plural}", event["object"])
    if not isinstance(failure, TooManyRequests):
        # The stream failed at an event: from the same version it would fail at it again.
        cache.invalidate()
    raise failure


def _needs_list(error: FleetError) -> bool:
    """Whether the same stream would only be refused again."""
    refused = isinstance(error, ApiError) and error.status < 500 and error.status not in {401, 429}
    return refused or isinstance(error, Gone)
