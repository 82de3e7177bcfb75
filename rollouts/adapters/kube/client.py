"""One API server and one namespace: everything that the port `Cluster` promises."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

from rollouts.adapters.kube.access import Access
from rollouts.adapters.kube.asking import Asking
from rollouts.adapters.kube.transport import Call, Transport, Wire
from rollouts.adapters.kube.watching import watching
from rollouts.errors import Gone, Unreachable
from rollouts.kube import requests
from rollouts.kube.model import AccessQuestion, Body, Change, Json, Listed, PatchKind, Request, Resource
from rollouts.kube.retrying import Backoff
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
        self._clock = clock
        self._chance = chance
        self._backoff = Backoff()
        self._asking = Asking(
            access,
            Wire(transport),
            clock=clock,
            chance=chance,
            backoff=self._backoff,
            patience_seconds=patience_seconds,
        )

    @property
    def ahead(self) -> timedelta | None:
        """How far the server's clock was ahead of ours at its last answer, within a second; None before the first."""
        return self._asking.ahead

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
        answer = await self._asking.insist(Call("GET", path), f"GET {path}", changes_nothing=True)
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
        said = _said(request)
        harmless = requests.changes_nothing(request)
        answer = await self._asking.insist(self._call(request), said, changes_nothing=harmless)
        return _json(answer.body, said)

    async def close(self) -> None:
        await self._asking.close()

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
            if "items" not in page or "metadata" not in page:
                raise Unreachable(f"{_said(whole)}: something answered that is no list")
            items += page["items"] or ()
            after = page["metadata"].get("continue", "")
            if not after:
                kind = {"apiVersion": whole.resource.api_version, "kind": whole.resource.kind}
                version = page["metadata"].get("resourceVersion", "")
                return Listed(items=tuple(kind | item for item in items), resource_version=version)

    def _stream(self, request: Request, silence_seconds: float) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._asking.listen(self._call(request), _said(request), silence_seconds=silence_seconds)

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
