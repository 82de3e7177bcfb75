"""What may happen to the streams of watches, and what a watch must have said for all that.

Between client and API server lie cuts within a line, repetitions, silence; a fold of what was said refuses to be told
anything twice or out of order.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Any

import httpx

from rollouts.kube.model import WatchEvent, WatchEventType

Key = tuple[str, str]


class Fold:
    """The state that a consumer of `Cluster.watch` has."""

    def __init__(self) -> None:
        self.objects: dict[Key, dict[str, Any]] = {}
        self.told: list[tuple[str, str]] = []
        """Kind and name of every change of an object."""
        self.synced = 0

    def take(self, change: WatchEvent) -> None:
        if change.kind is WatchEventType.SYNCED:
            self.synced += 1
        if change.kind in {WatchEventType.SYNCED, WatchEventType.BOOKMARK}:
            return
        meta = change.object["metadata"]
        key = meta.get("namespace", ""), meta["name"]
        before = self.objects.get(key)
        self.told.append((change.kind.value, meta["name"]))
        if change.kind is WatchEventType.ADDED:
            assert before is None, f"{key} was added twice"
            self.objects[key] = change.object
        elif change.kind is WatchEventType.MODIFIED:
            assert before is not None, f"{key} changed before it was added"
            assert meta["uid"] == before["metadata"]["uid"], f"{key} is another object"
            assert int(meta["resourceVersion"]) > int(before["metadata"]["resourceVersion"]), f"{key} was told again"
            self.objects[key] = change.object
        else:
            assert before is not None, f"{key} was deleted twice"
            assert meta["uid"] == before["metadata"]["uid"], f"{key} is another object"
            del self.objects[key]

    @property
    def versions(self) -> dict[Key, str]:
        """Which version of each object is known."""
        return {key: item["metadata"]["resourceVersion"] for key, item in self.objects.items()}


class Harm(StrEnum):
    """What happens to one stream."""

    NONE = "none"
    REPEATED = "repeated"
    """Each event comes three times: at once, and again before the next one."""
    CUT_WITHIN = "cut-within"
    """The second event ends in its middle, and so does the stream, as if that were all."""
    BROKEN_WITHIN = "broken-within"
    """The same, and the connection breaks."""
    CRUMBLED = "crumbled"
    """Three bytes at a time."""
    SILENT = "silent"
    """After the first event nothing comes until the client gives up."""
    FAILED = "failed"
    """After the first event the server tells, as an event, that it failed; it does so at this event each time."""
    FOREIGN = "foreign"
    """A proxy speaks up: a page of HTML."""


class RoughTransport(httpx.AsyncBaseTransport):
    """Harms each stream of a watch by the next of `harms`; those after the last are whole."""

    def __init__(self, inner: httpx.AsyncBaseTransport, harms: list[Harm]) -> None:
        self._inner = inner
        self._harms = list(harms)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        if "watch" in request.url.params and response.status_code == 200 and self._harms:
            assert isinstance(response.stream, httpx.AsyncByteStream)
            response.stream = _Harmed(response.stream, self._harms.pop(0))
        return response


class _Harmed(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream, harm: Harm) -> None:
        self._inner = inner
        self._harm = harm

    async def __aiter__(self) -> AsyncIterator[bytes]:
        told: list[bytes] = []
        if self._harm is Harm.FOREIGN:
            yield b"<html>\n<body>502</body>\n"
            return
        async for line in self._inner:
            match self._harm:
                case Harm.REPEATED:
                    yield b"".join(told[-2:]) + line + line
                case Harm.CUT_WITHIN | Harm.BROKEN_WITHIN if told:
                    yield line[: len(line) // 2]
                    if self._harm is Harm.BROKEN_WITHIN:
                        raise httpx.ReadError("broken")
                    return
                case Harm.SILENT if told:
                    raise httpx.ReadTimeout("silence")
                case Harm.FAILED if told:
                    status = {"kind": "Status", "code": 500, "reason": "InternalError", "message": "cannot decode"}
                    yield json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"
                    return
                case Harm.CRUMBLED:
                    for start in range(0, len(line), 3):
                        yield line[start : start + 3]
                case _:
                    yield line
            told.append(line)

    async def aclose(self) -> None:
        await self._inner.aclose()
