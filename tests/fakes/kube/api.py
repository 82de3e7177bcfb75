"""The HTTP face of a cluster: a request comes in, an answer or a stream goes out; no sockets here."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from email.utils import format_datetime
from typing import Any

from fakes.kube import discovery
from fakes.kube.access import Access
from fakes.kube.call import Asked, Call, call_of
from fakes.kube.cluster import FakeCluster
from fakes.kube.faults import CutStream, Effect, ExpireStream, Faults, LoseAnswer, LoseRequest, Meanwhile, Refuse
from fakes.kube.pages import Pages
from fakes.kube.refusal import Refusal, expired
from fakes.kube.selectors import both
from fakes.kube.verbs import Verbs
from fakes.kube.watch import Watch

Json = dict[str, Any]


class Lost(Exception):
    """No answer: the connection did not come about, or broke; `sent` says whether the request got through."""

    def __init__(self, *, sent: bool) -> None:
        super().__init__("the connection broke" if sent else "no connection")
        self.sent = sent


@dataclass(frozen=True)
class Reply:
    """A whole answer."""

    code: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Stream:
    """An answer that goes on, line by line."""

    lines: AsyncIterator[bytes]
    headers: dict[str, str]
    end: Callable[[], None]


class Api:
    """What one API server does with a request: faults, then who asks, then what may be done, then doing it."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.faults = Faults()
        self.access = Access()
        self.texts: dict[str, Callable[[], str]] = {}
        """Plain answers by path: metrics through the service proxy, a pod's log."""
        self.clock_skew_seconds = 0.0
        """How far the server's clock is ahead, as its Date header tells."""
        self.calls: list[Call] = []
        """Every request that got through, in order."""
        self._watches: set[Watch] = set()
        self._verbs = Verbs(cluster, self.access, Pages(cluster.store))

    def vanish(self) -> None:
        """The region cannot be reached any more; it goes on by itself."""
        self.faults.vanished = True
        self.cut_watches()

    def come_back(self) -> None:
        self.faults.vanished = False

    def cut_watches(self) -> None:
        """Every open stream ends, as when a load balancer forgets its connections."""
        for watch in tuple(self._watches):
            watch.end()

    def answer(self, asked: Asked) -> Reply | Stream:
        """Serve one request.

        Raises:
            Lost: there is no answer.
        """
        call = call_of(asked)
        if self.faults.vanished:
            raise Lost(sent=False)
        effects = self.faults.struck(call)
        if any(isinstance(effect, LoseRequest) for effect in effects):
            raise Lost(sent=False)
        self.calls.append(call)
        try:
            reply = self._served(call, asked, effects)
        except Refusal as refusal:
            reply = self._refused(refusal)
        if any(isinstance(effect, LoseAnswer) for effect in effects):
            raise Lost(sent=True)
        return reply

    def _served(self, call: Call, asked: Asked, effects: list[Effect]) -> Reply | Stream:
        for effect in effects:
            if isinstance(effect, Meanwhile):
                effect.happens(call)
            if isinstance(effect, Refuse):
                raise effect.refusal
        self.access.check(call, asked.headers.get("authorization", ""))
        if call.verb == "watch":
            return self._stream(call, asked, effects)
        if asked.method == "GET" and asked.path in self.texts:
            return Reply(200, self.texts[asked.path]().encode(), self._headers("text/plain; charset=utf-8"))
        if not call.plural:
            return self._json(200, discovery.document(self.cluster, asked))
        code, body, warnings = self._verbs.serve(call, asked)
        return self._json(code, body, warnings)

    def _stream(self, call: Call, asked: Asked, effects: list[Effect]) -> Stream:
        kind = self.cluster.served(call.group, call.plural, call.version)
        query = asked.query
        named = f"metadata.name={call.name}" if call.name else ""
        fields = ",".join(term for term in (query.get("fieldSelector", ""), named) if term)
        watch = Watch(
            self.cluster.store,
            self.cluster.time,
            kind,
            namespace=call.namespace,
            chosen=both(query.get("labelSelector", ""), fields, kind.plural),
            since=query.get("resourceVersion", ""),
            bookmarks=query.get("allowWatchBookmarks") in ("1", "true"),
            timeout=float(query.get("timeoutSeconds", 0)),
        )
        self._watches.add(watch)
        return Stream(self._lines(watch, effects), self._headers("application/json"), watch.end)

    async def _lines(self, watch: Watch, effects: list[Effect]) -> AsyncIterator[bytes]:
        told = 0
        cut = next((effect for effect in effects if isinstance(effect, CutStream | ExpireStream)), None)
        try:
            if cut is None or cut.after > 0:
                async for event in watch.events():
                    yield _line(event)
                    told += 1
                    if cut is not None and told >= cut.after:
                        break
            if self.faults.vanished:
                raise Lost(sent=True)
            if isinstance(cut, ExpireStream):
                yield _line({"type": "ERROR", "object": expired("too old resource version: 1 (2)").status()})
        finally:
            watch.end()
            self._watches.discard(watch)

    def _refused(self, refusal: Refusal) -> Reply:
        headers = {} if refusal.retry_after is None else {"retry-after": str(refusal.retry_after)}
        reply = self._json(refusal.code, refusal.status())
        return Reply(reply.code, reply.body, reply.headers | headers)

    def _json(self, code: int, body: Json, warnings: tuple[str, ...] = ()) -> Reply:
        headers = self._headers("application/json")
        if warnings:
            headers["warning"] = ", ".join(f'299 - "{warning}"' for warning in warnings)
        return Reply(code, json.dumps(body).encode(), headers)

    def _headers(self, content_type: str) -> dict[str, str]:
        now = self.cluster.time.now()
        skewed = type(now).fromtimestamp(now.timestamp() + self.clock_skew_seconds, now.tzinfo)
        return {"content-type": content_type, "date": format_datetime(skewed, usegmt=True)}


def _line(event: Json) -> bytes:
    return json.dumps(event).encode() + b"\n"
