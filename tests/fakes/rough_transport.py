"""What lies between a client and an API server and harms the streams of watches: cuts within a line, repetitions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from enum import StrEnum

import httpx


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
