"""The live page of `tidegate serve`: a snapshot of the ledger, drawn on the server, asked for again by the browser."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from pipelines.events.payloads import Closing
from pipelines.events.state import DeliveryState, state_of
from pipelines.requests import QueuedRequest, RequestState
from pipelines.views.section import TEMPLATES, asset, section
from pipelines.views.wording import headline, moment, stopwatch
from registry.deliveries import MlflowDeliveries, why_dead
from registry.errors import UnknownDelivery
from registry.model import DeliverySummary
from tidegate.core.clock import Clock
from tidegate.core.errors import NotGenuine, OutsideError, TidegateError
from tidegate.core.model import Value
from tidegate.core.threads import call_in_thread

LAST = 10
"""Deliveries that are shown."""


class DeliverySnapshot(Value):
    """One delivery."""

    summary: DeliverySummary
    alive: bool
    """Whether somebody carries it; False for one that is over."""
    story: DeliveryState | None
    """None when its record cannot be read."""

    @property
    def over(self) -> bool:
        return self.summary.ended is not None

    @property
    def headline(self) -> str:
        """Where it stands, in one line."""
        name = f"{self.summary.name} {self.summary.version}"
        if not self.over and not self.alive:
            return f"{name} died at {self.summary.last_step or 'its start'}"
        if self.story is None or self.story.started is None:
            return f"{name}: {self.summary.outcome or 'on its way'}"
        return headline(self.story)


class PageSnapshot(Value):
    """What the ledger and the request queue held at one moment."""

    at: datetime
    deliveries: tuple[DeliverySnapshot, ...] = ()
    """Newest first."""
    more: bool = False
    """Whether there are older ones, which are not shown."""
    requests: tuple[QueuedRequest, ...] = ()
    """Those that have no delivery yet, oldest first."""


class SnapshotReader:
    """Remembers the stories of deliveries that are over, which nobody changes any more."""

    def __init__(
        self, model: str, ledgers: MlflowDeliveries, requests: Callable[[], Sequence[QueuedRequest]], clock: Clock
    ) -> None:
        """`requests` returns those that stand, oldest first."""
        self._model, self._ledgers, self._requests, self._clock = model, ledgers, requests, clock
        self._over: dict[str, DeliverySnapshot] = {}

    def look(self) -> PageSnapshot:
        """Ask; blocks.

        Raises:
            OutsideError: the ledger or the inbox did not answer.
        """
        at = self._clock.now()
        found = self._ledgers.deliveries(self._model, last=LAST + 1)
        seen = tuple(self._over.get(each.id) or self._seen(each) for each in found[:LAST])
        self._over = {each.summary.id: each for each in seen if each.over}
        requests = tuple(entry for entry in self._requests() if _waits(entry))
        return PageSnapshot(at=at, deliveries=seen, more=len(found) > LAST, requests=requests)

    def _seen(self, delivery: DeliverySummary) -> DeliverySnapshot:
        story: DeliveryState | None
        try:
            story = state_of(self._ledgers.events(delivery.id))
        except (NotGenuine, ValueError):
            # Anyone who may write to MLflow may write nonsense; it hides this delivery, and no other.
            story = None
        if story is not None and story.outcome is None and delivery.ended is not None:
            # One that died was closed by another, who writes no event.
            closing = Closing(outcome=delivery.outcome or "interrupted", reason=delivery.reason or "")
            story = story.apply(closing.event(delivery.ended, "delivery"))
        return DeliverySnapshot(summary=delivery, alive=self._ledgers.is_alive(delivery), story=story)


def _waits(entry: QueuedRequest) -> bool:
    """Whether there is no delivery for it, and it is not past its time either."""
    return entry.delivery is None and entry.state in (RequestState.QUEUED, RequestState.STARTED, RequestState.OVER)


Parts = Mapping[str, str]
"""The page as it stands: its parts as HTML, by their ids in the page."""
PARTS = ("news", "status", "requests", "now", "earlier")
"""In the order of the page; each is a macro of the template, and the id of an element that holds what it says."""


def draw(model: str, now: datetime, look: PageSnapshot | None, silent_since: datetime | None = None) -> Parts:
    """The page at one moment.

    Args:
        model: whose deliveries they are.
        now: the time.
        look: the last snapshot; None before the first.
        silent_since: when the first of the looks failed that have failed since; None when the last one succeeded.
    """
    seen = [(each, _rows(each)) for each in look.deliveries] if look else []
    newest = look.deliveries[0] if look and look.deliveries else None
    runs = newest is not None and not newest.over and newest.alive
    known = {
        "look": look,
        "silent_since": silent_since,
        "sentence": _news(model, newest) if look else "",
        "elapsed": stopwatch(max((now - newest.summary.started).total_seconds(), 0)) if newest and runs else "",
        "open": [rows for each, rows in seen if not each.over],
        "over": [rows for each, rows in seen if each.over],
    }
    module = TEMPLATES.get_template("parts.html.j2").make_module(known)
    return {name: str(getattr(module, name)()) for name in PARTS}


def _news(model: str, newest: DeliverySnapshot | None) -> str:
    """The one sentence that is read out when it changes."""
    if newest is None:
        return f"{model} has not been delivered yet."
    if newest.over or not newest.alive or newest.story is None:
        return f"Nothing is being delivered. The last: {newest.headline}."
    at_work = [step for step in newest.story.steps if step.is_at_work]
    doing = ", ".join(f"{step.id} is held" if step.is_held else step.id for step in at_work)
    return f"{model} {newest.summary.version} is on its way: {doing or 'between two steps'}."


def _rows(seen: DeliverySnapshot) -> dict[str, Any]:
    """A delivery as the template shows it."""
    summary, dead = seen.summary, not seen.over and not seen.alive
    rows = section(summary.id, summary.id, seen.story or DeliveryState(model=summary.name, version=summary.version))
    if not seen.over:
        rows |= {"tone": "bad" if dead else "at-work"}
    if dead:
        rows |= {"at_work": ""}
    if seen.story is None or seen.story.started is None:
        # Lists know it, though its story does not.
        rows["facts"] = {"Version": f"{summary.name} {summary.version}", "Began": moment(summary.started)}
    return rows | {
        "headline": seen.headline,
        "outcome": summary.outcome or ("died" if dead else "running"),
        "began": summary.started,
        "unreadable": seen.story is None,
        "dead": f"{why_dead(summary)}." if dead else "",
    }


PAGE, NOW, REPORT, STYLE, SCRIPT = "/", "/now", "/deliveries/{id}", "/page.css", "/page.js"
"""Its addresses."""
EVERY_SECONDS = 2.0
"""Between two looks; a gate is asked as often."""
PATIENCE_SECONDS = 5.0
"""A page is shown as it was last known rather than later than this."""
MOST_REPORTS = 8
"""That are drawn at once."""

_ID = re.compile(r"[0-9a-f]{32}")
_NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_OWN = {"Content-Security-Policy": f"{_NOTHING}; style-src 'self'; script-src 'self'; connect-src 'self'"}
# The report is one file with its style in it, and has no script.
_INLINE = {"Content-Security-Policy": f"{_NOTHING}; style-src 'unsafe-inline'"}


class LivePage:
    """Answers browsers; one look at the ledger serves everybody who watches."""

    def __init__(
        self, model: str, look: Callable[[], PageSnapshot], report: Callable[[str], str], clock: Clock
    ) -> None:
        """`look` and `report` may block: the one is never called twice at once, the other renders a delivery by its id.

        `report` raises `UnknownDelivery`, or `OutsideError` when the ledger did not answer.
        """
        self._model, self._look, self._report, self._clock = model, look, report, clock
        self._last: PageSnapshot | None = None
        self._silent_since: datetime | None = None
        self._looked_at = float("-inf")
        self._looking: asyncio.Task[None] | None = None
        self._reports = 0
        self._parts = draw(model, clock.now(), None)

    def routes(self) -> list[Route]:
        """For a web application that decides who may look."""
        style, script = asset("style.css") + asset("page.css"), asset("page.js")
        return [
            Route(PAGE, self._page, methods=["GET"]),
            Route(NOW, self._now, methods=["GET"]),
            Route(REPORT, self._delivery, methods=["GET"]),
            Route(STYLE, lambda _: Response(style, media_type="text/css"), methods=["GET"]),
            Route(SCRIPT, lambda _: Response(script, media_type="text/javascript"), methods=["GET"]),
        ]

    async def current(self) -> Parts:
        """The page as it was `EVERY_SECONDS` ago at the latest; the one who gives up waiting stops no look."""
        if self._looking is None and self._clock.monotonic() - self._looked_at >= EVERY_SECONDS:
            self._looking = asyncio.create_task(self._once())
        if self._looking is not None:
            await asyncio.wait([self._looking], timeout=PATIENCE_SECONDS)
        return self._parts

    async def _once(self) -> None:
        try:
            self._parts = await call_in_thread(self._drawn)
        finally:
            self._looked_at = self._clock.monotonic()
            self._looking = None

    def _drawn(self) -> Parts:
        try:
            self._last, self._silent_since = self._look(), None
        except TidegateError:
            # Not what it says: it names the address of the store, which may carry a password.
            self._silent_since = self._silent_since or self._clock.now()
        return draw(self._model, self._clock.now(), self._last, self._silent_since)

    async def _page(self, _: Request) -> Response:
        html = TEMPLATES.get_template("page.html.j2").render(model=self._model, parts=await self.current())
        return HTMLResponse(html, headers=_OWN)

    async def _now(self, _: Request) -> Response:
        """The parts, each in an element with its id; a browser puts in its place what is new to it."""
        return HTMLResponse("".join(f'<div id="{name}">{html}</div>' for name, html in (await self.current()).items()))

    async def _delivery(self, request: Request) -> Response:
        id, unknown = request.path_params["id"], PlainTextResponse("there is no such delivery", HTTPStatus.NOT_FOUND)
        if _ID.fullmatch(id) is None:
            return unknown
        if self._reports >= MOST_REPORTS:
            again = {"Retry-After": "10"}
            return PlainTextResponse("too many reports", HTTPStatus.SERVICE_UNAVAILABLE, again)
        self._reports += 1
        try:
            return HTMLResponse(await run_in_threadpool(self._report, id), headers=_INLINE)
        except UnknownDelivery:
            return unknown
        except OutsideError:
            return PlainTextResponse("MLflow does not answer", HTTPStatus.SERVICE_UNAVAILABLE)
        finally:
            self._reports -= 1
