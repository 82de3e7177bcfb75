"""A cluster as an httpx transport: the whole way of a request, in process and without a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
from fakes.kube.api import Api, Lost, Reply, Stream
from fakes.kube.call import Asked


class FakeTransport(httpx.AsyncBaseTransport):
    """Answers in the event loop of whoever asks. A lost request is a ConnectError, a lost answer a ReadError."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        asked = Asked(
            request.method,
            request.url.raw_path.decode().partition("?")[0],
            dict(request.url.params),
            {name.lower(): value for name, value in request.headers.items()},
            await request.aread(),
        )
        try:
            answer = self._api.answer(asked)
        except Lost as lost:
            error = httpx.ReadError if lost.sent else httpx.ConnectError
            raise error(str(lost), request=request) from lost
        if isinstance(answer, Reply):
            return httpx.Response(answer.code, headers=answer.headers, content=answer.body, request=request)
        return httpx.Response(200, headers=answer.headers, stream=_Lines(answer), request=request)


class _Lines(httpx.AsyncByteStream):
    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for line in self._stream.lines:
                yield line
        except Lost as lost:
            raise httpx.ReadError(str(lost)) from lost

    async def aclose(self) -> None:
        self._stream.end()
        close: Any = getattr(self._stream.lines, "aclose", None)
        if close is not None:
            await close()
