"""One API server and one namespace: everything that the port `Cluster` promises."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

from rollouts.adapters.kube.access import Access
from rollouts.adapters.kube.transport import Answer, Call, Transport, Wire
from rollouts.adapters.kube.watching import watching
from rollouts.errors import FleetError, Gone, Unreachable
from rollouts.kube import requests
from rollouts.kube.model import AccessQuestion, Body, Change, Json, Listed, PatchKind, Request, Resource
from rollouts.kube.retrying import Backoff, asked_pause, may_repeat
from rollouts.kube.status import refusal
from tidegate.core.clock import Clock

PATIENCE_SECONDS = 20.0
"""After this long no request is sent again; whoever asks has a deadline of their own."""


class KubeClient:
    """A `Cluster` over HTTP."""

    def __init__(
        self,
        access: Access,
        *,
        namespace: str,
        clock: Clock,
        transport: Transport | None = None,
        chance: Callable[[], float] = random.random,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """`chance` gives numbers from 0 up to 1, for the pauses between tries; `transport` replaces the network."""
        self.namespace = namespace
        self._access = access
        self._clock = clock
        self._chance = chance
        self._patience_seconds = patience_seconds
        self._backoff = Backoff()
        self._wire = Wire(transport)
        self.ahead: timedelta | None = None
        """How far the server's clock was ahead of ours at its last answer, by its Date header; within a second."""

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Json:
        return await self.send(requests.get(resource, name, namespace))

    async def list(
        self, resource: Resource, *, labels: str = "", fields: str = "", namespace: str | None = None
    ) -> Listed:
        whole = requests.collection(resource, labels=labels, fields=fields, namespace=namespace)
        return await self._list(whole)

    def watch(
        self, resource: Resource, *, labels: str = "", fields: str = "", namespace: str | None = None
    ) -> AsyncGenerator[Change, None]:
        whole = requests.collection(resource, labels=labels, fields=fields, namespace=namespace)
        return watching(
            whole, lists=self._list, streams=self._stream, clock=self._clock, chance=self._chance, backoff=self._backoff
        )

    async def allowed(self, question: AccessQuestion) -> bool:
        answer = await self.send(requests.review(question, self.namespace))
        return bool(answer["status"]["allowed"])

    async def server_version(self) -> Json:
        return _json(await self.text("/version"), "GET /version")

    async def text(self, path: str) -> str:
        answer = await self._insist(Call("GET", path), f"GET {path}", changes_nothing=True)
        return answer.body.decode(errors="replace")

    async def create(self, resource: Resource, body: Json) -> Json:
        return await self.send(requests.create(resource, body))

    async def apply(self, body: Json, *, force: bool = False, dry_run: bool = False) -> Json:
        return await self.send(requests.apply(body, force=force, dry_run=dry_run))

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Body,
        *,
        kind: PatchKind = PatchKind.MERGE,
        subresource: str = "",
        dry_run: bool = False,
        namespace: str | None = None,
    ) -> Json:
        return await self.send(
            requests.patch(
                resource, name, body, kind=kind, subresource=subresource, dry_run=dry_run, namespace=namespace
            )
        )

    async def replace(self, resource: Resource, body: Json) -> Json:
        return await self.send(requests.replace(resource, body))

    async def delete(self, resource: Resource, name: str, *, namespace: str | None = None) -> None:
        await self.send(requests.delete(resource, name, namespace))

    async def send(self, request: Request) -> Json:
        answer = await self._insist(
            self._call(request), _said(request), changes_nothing=requests.changes_nothing(request)
        )
        return _json(answer.body, _said(request))

    async def close(self) -> None:
        await self._wire.close()

    async def _list(self, whole: Request) -> Listed:
        """Page after page of one moment; when that moment expires meanwhile, all in one answer, as client-go does."""
        items: list[Json] = []
        after = ""
        while True:
            try:
                page = await self.send(requests.page(whole, after))
            except Gone:
                if not after:
                    raise
                items, page = [], await self.send(whole)
            items += page["items"] or ()
            after = page["metadata"].get("continue", "")
            if not after:
                kind = {"apiVersion": whole.resource.api_version, "kind": whole.resource.kind}
                return Listed(
                    items=tuple(kind | item for item in items), resource_version=page["metadata"]["resourceVersion"]
                )

    async def _insist(self, call: Call, said: str, *, changes_nothing: bool) -> Answer:
        """Send it, and again as long as that is safe and promises anything."""
        begun, failures = self._clock.monotonic(), 0
        while True:
            try:
                return await self._once(call, said)
            except FleetError as error:
                failures += 1
                pause = max(self._backoff.pause(failures, self._chance()), asked_pause(error))
                late = self._clock.monotonic() + pause - begun > self._patience_seconds
                if late or not may_repeat(error, changes_nothing=changes_nothing):
                    raise
            await self._clock.sleep(pause)

    async def _once(self, call: Call, said: str) -> Answer:
        """Send it; once more, as somebody whose credential is fresh, when the server does not know us."""
        credential = await self._access.credential()
        answer = await self._wire.ask(call, credential)
        if answer.status == 401:
            answer = await self._wire.ask(call, await self._access.renewed(credential))
        if answer.date:
            self.ahead = answer.date - self._clock.now()
        if answer.status >= 400:
            raise refusal(said, answer.status, answer.body, answer.retry_after)
        return answer

    @asynccontextmanager
    async def _stream(self, request: Request, silence_seconds: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of a watch; like `_once` for the time until they come."""
        credential = await self._access.credential()
        refused: Answer | None = None
        while True:
            async with self._wire.listen(self._call(request), credential, silence_seconds=silence_seconds) as heard:
                if not isinstance(heard, Answer):
                    yield heard
                    return
            if refused or heard.status != 401:
                raise refusal(_said(request), heard.status, heard.body, heard.retry_after)
            refused, credential = heard, await self._access.renewed(credential)

    def _call(self, request: Request) -> Call:
        return Call(
            request.method,
            request.path(self.namespace),
            query=request.query,
            content=request.content,
            content_type=request.content_type,
        )


def _said(request: Request) -> str:
    """A request in few words, for errors: `PATCH rollouts/support-llm/status`."""
    parts = (request.resource.plural, request.name, request.subresource)
    return f"{request.method} {'/'.join(part for part in parts if part)}"


def _json(body: str | bytes, said: str) -> Json:
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        # A proxy or a login page in between.
        raise Unreachable(f"{said}: something answered that is no API server")
    return answer
