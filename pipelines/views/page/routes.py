"""The live page as a part of a web application: one poll of the ledger serves everybody who watches."""

from __future__ import annotations

import asyncio
import re
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from http import HTTPStatus

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from pipelines.views.page import PAGE, REPORT, SCRIPT, STREAM, STYLE, USER
from pipelines.views.page.render import draw, page, script, style
from pipelines.views.page.snapshot import PageParts, PageSnapshot, PageView
from registry.errors import UnknownDelivery
from tidegate.core.clock import Clock
from tidegate.core.errors import OutsideError, TidegateError
from tidegate.core.model import Value
from tidegate.core.threads import call_in_thread

EVERY_SECONDS = 2.0
"""Between two looks; a gate is asked as often."""


class Board:
    """Holds the picture of the last look."""

    def __init__(self, model: str, look: Callable[[], PageSnapshot], clock: Clock) -> None:
        """`look` may block and is called in a thread, never twice at once."""
        self.model = model
        self._look, self._clock = look, clock
        self._last: PageSnapshot | None = None
        self._silent_since: datetime | None = None
        self._looked_at = float("-inf")
        self._looking: asyncio.Task[None] | None = None
        self.picture: PageParts = draw(PageView(model=model, now=clock.now()))
        """The page as it stood at the last look."""

    def is_over(self, delivery: str) -> bool:
        """Whether the last look saw the delivery, and its end."""
        seen = self._last.deliveries if self._last else ()
        return any(each.summary.id == delivery and each.over for each in seen)

    async def refresh(self) -> None:
        """Return once the picture is not older than `EVERY_SECONDS`; the one who gives up waiting stops no look."""
        if self._looking is None:
            if self._clock.monotonic() - self._looked_at < EVERY_SECONDS:
                return
            self._looking = asyncio.create_task(self._once())
        await asyncio.shield(self._looking)

    async def _once(self) -> None:
        try:
            await call_in_thread(self._draw)
        finally:
            self._looked_at = self._clock.monotonic()
            self._looking = None

    def _draw(self) -> None:
        try:
            self._last, self._silent_since = self._look(), None
        except TidegateError:
            # Not what it says: it names the address of the store, which may carry a password.
            self._silent_since = self._silent_since or self._clock.now()
        known = PageView(model=self.model, now=self._clock.now(), look=self._last, silent_since=self._silent_since)
        self.picture = draw(known)


RETRY = "retry: 3000\n\n"
"""Milliseconds after which a browser comes back when the connection was lost."""
HEARTBEAT = ": nothing new\n\n"
"""A comment, so that proxies and browsers know that the connection lives."""

_LINE_END = re.compile(r"\r\n|\r|\n")


def changes(known: Mapping[str, str], picture: PageParts) -> str:
    """The parts that are not as `known`, each in an element with its id; empty when all are."""
    return "".join(f'<div id="{name}">{html}</div>' for name, html in picture.parts.items() if known.get(name) != html)


def frame(html: str, digest: str) -> str:
    """One event; a browser that lost the connection says `digest` when it comes back, and gets only what is newer."""
    data = "".join(f"data: {line}\n" for line in _LINE_END.split(html))
    return f"id: {digest}\n{data}\n"


_ID = re.compile(r"[0-9a-f]{32}")
_ALWAYS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
_NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_OWN = {"Content-Security-Policy": f"{_NOTHING}; style-src 'self'; script-src 'self'; connect-src 'self'"}
# The report is one file with its style in it, and has no script.
_INLINE = {"Content-Security-Policy": f"{_NOTHING}; style-src 'unsafe-inline'"}
_BUSY = {"Retry-After": "10"}
_UNKNOWN = PlainTextResponse("there is no such delivery", HTTPStatus.NOT_FOUND, _ALWAYS)


class PageLimits(Value):
    """How much is done for those who watch."""

    streams: int = 64
    """Browsers that are kept current at once; each costs a connection and some memory."""
    streams_of_one: int = 16
    """Of these, for one address, or for one person where people log in."""
    reports: int = 8
    """That are drawn or wait for their turn; each takes a second of a processor."""
    kept_reports: int = 16
    """Of deliveries that are over, which nobody changes any more."""
    patience_seconds: float = 5.0
    """A page is shown as it was last known rather than later than this."""
    heartbeat_seconds: float = 10.0
    """Of silence at most, while the ledger does not answer."""


class LivePage:
    """Answers browsers until it is stopped."""

    def __init__(self, board: Board, report: Callable[[str], str], limits: PageLimits | None = None) -> None:
        """`report` renders the report of a delivery by its id; it may block.

        Raises, when called: `UnknownDelivery`, or `OutsideError` when the ledger did not answer.
        """
        self._board, self._report, self._limits = board, report, limits or PageLimits()
        self._stopped = asyncio.Event()
        self._rendering = asyncio.Lock()
        self._streams: Counter[str] = Counter()
        self._wanted = 0
        self._kept: OrderedDict[str, str] = OrderedDict()

    def stop(self) -> None:
        """End all streams, also those to come: one that goes on for ever would hold up the end of the server."""
        self._stopped.set()

    def routes(self) -> list[Route]:
        gets: Mapping[str, Callable[[Request], Awaitable[Response]]] = {
            PAGE: self._page,
            STREAM: self._stream,
            REPORT: self._delivery,
            STYLE: _text(style(), "text/css"),
            SCRIPT: _text(script(), "text/javascript"),
        }
        return [Route(path, endpoint, methods=["GET"]) for path, endpoint in gets.items()]

    async def _page(self, _: Request) -> Response:
        await self._unless_stopped(self._board.refresh(), self._limits.patience_seconds)
        return HTMLResponse(page(self._board.model, self._board.picture), headers=_ALWAYS | _OWN)

    async def _delivery(self, request: Request) -> Response:
        id = request.path_params["id"]
        if _ID.fullmatch(id) is None:
            return _UNKNOWN
        if id not in self._kept and self._wanted >= self._limits.reports:
            return PlainTextResponse("too many reports", HTTPStatus.SERVICE_UNAVAILABLE, _ALWAYS | _BUSY)
        try:
            html = await self._drawn(id)
        except UnknownDelivery:
            return _UNKNOWN
        except OutsideError:
            return PlainTextResponse("MLflow does not answer", HTTPStatus.SERVICE_UNAVAILABLE, _ALWAYS)
        return HTMLResponse(html, headers=_ALWAYS | _INLINE)

    async def _drawn(self, id: str) -> str:
        """The report; drawn once for a delivery that is over.

        Raises:
            UnknownDelivery: nobody has heard of it.
            OutsideError: the ledger did not answer.
        """
        if id in self._kept:
            return self._kept[id]
        self._wanted += 1
        try:
            # One at a time: matplotlib's settings are global.
            async with self._rendering:
                html = await run_in_threadpool(self._report, id)
        finally:
            self._wanted -= 1
        if self._board.is_over(id):
            self._kept[id] = html
            if len(self._kept) > self._limits.kept_reports:
                self._kept.popitem(last=False)
        return html

    async def _stream(self, request: Request) -> Response:
        who = _who(request)
        if self._streams.total() >= self._limits.streams or self._streams[who] >= self._limits.streams_of_one:
            return PlainTextResponse("too many streams", HTTPStatus.SERVICE_UNAVAILABLE, _ALWAYS | _BUSY)
        if request.method == "HEAD":
            return Response(media_type="text/event-stream", headers=_ALWAYS)
        seen = request.headers.get("Last-Event-ID") or request.query_params.get("seen", "")
        self._streams[who] += 1
        return _Stream(self._frames(seen), partial(self._left, who))

    def _left(self, who: str) -> None:
        self._streams[who] -= 1

    async def _frames(self, seen: str) -> AsyncIterator[str]:
        """What a browser is sent that has what `seen` names: everything first, unless that is still so."""
        yield RETRY
        await self._unless_stopped(self._board.refresh(), heartbeat := self._limits.heartbeat_seconds)
        known = self._board.picture.parts if seen == self._board.picture.digest else {}
        while not self._stopped.is_set():
            picture = self._board.picture
            html = changes(known, picture)
            yield frame(html, picture.digest) if html else HEARTBEAT
            known = picture.parts
            await self._unless_stopped(asyncio.sleep(EVERY_SECONDS), heartbeat)
            await self._unless_stopped(self._board.refresh(), heartbeat)

    async def _unless_stopped(self, awaited: Awaitable[None], seconds: float) -> None:
        """Return when that is done, when the page is stopped, or after so many seconds."""
        wanted, stopped = asyncio.ensure_future(awaited), asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait([wanted, stopped], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if wanted.done():
                # What went wrong is a bug, and is to be seen in the log.
                wanted.result()
        finally:
            wanted.cancel()
            stopped.cancel()


class _Stream(StreamingResponse):
    """Says when it is over, however it came to that."""

    def __init__(self, frames: AsyncIterator[str], left: Callable[[], None]) -> None:
        # For nginx, which would keep events back until it has some kilobytes of them.
        headers = _ALWAYS | {"X-Accel-Buffering": "no"}
        super().__init__(frames, media_type="text/event-stream", headers=headers)
        self._left = left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._left()


def _who(request: Request) -> str:
    """Whose streams are counted together: behind a proxy everybody has its address, and a name of his own."""
    return str(request.scope.get(USER) or (request.client.host if request.client else ""))


def _text(text: str, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_: Request) -> Response:
        return Response(text, media_type=media_type, headers=_ALWAYS)

    return answer
