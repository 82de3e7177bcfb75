"""The Kubernetes client: one API server and one namespace, everything that the port `Cluster` promises."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta

from rollouts.adapters.kube.credentials import CredentialProvider, credential_provider, namespace_of
from rollouts.adapters.kube.transport import HttpClient, HttpRequest, Transport
from rollouts.errors import Gone, Unreachable
from rollouts.kube import requests
from rollouts.kube.model import AccessReview, Body, ObjectList, PatchKind, Request, Resource
from rollouts.kube.retry import RetryPolicy
from tidegate.core.clock import Clock
from tidegate.core.model import Json
from tidegate.core.text import json_of

RETRY_SECONDS = 20.0
"""No request is retried for longer; an operation above it is repeated for longer, until its deadline."""


class KubeClient:
    """A `Cluster` over HTTP."""

    def __init__(
        self,
        credentials: CredentialProvider,
        *,
        namespace: str,
        clock: Clock,
        transport: Transport | None = None,
        chance: Callable[[], float] = random.random,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        """`chance` gives numbers from 0 up to 1, for the pauses between attempts; `transport` replaces the network."""
        self.namespace = namespace
        retries = RetryPolicy(clock, seconds=retry_seconds, chance=chance)
        self._http = HttpClient(credentials, retries, transport=transport)

    @property
    def ahead(self) -> timedelta | None:
        """How far the server's clock was ahead of ours at its last answer, within a second; None before the first."""
        return self._http.ahead

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Json:
        return await self.send(requests.get(resource, name, namespace))

    async def list(
        self, resource: Resource, *, labels: str = "", fields: str = "", namespace: str | None = None
    ) -> ObjectList:
        """Page after page of one moment; when that moment expires meanwhile, all in one answer, as client-go does."""
        whole = requests.collection(resource, labels=labels, fields=fields, namespace=namespace)
        items: list[Json] = []
        after = ""
        while True:
            try:
                page = await self.send(requests.list_page(whole, after))
            except Gone:
                if not after:
                    raise
                items, page = [], await self.send(whole)
            if "items" not in page or "metadata" not in page:
                raise Unreachable(
                    f"{_describe(whole)}: something answered that is no list",
                    hint="check the server in the kubeconfig: a proxy answers",
                )
            items += page["items"] or ()
            after = page["metadata"].get("continue", "")
            if not after:
                kind = {"apiVersion": whole.resource.api_version, "kind": whole.resource.kind}
                version = page["metadata"].get("resourceVersion", "")
                return ObjectList(items=tuple(kind | item for item in items), resource_version=version)

    async def allowed(self, question: AccessReview) -> bool:
        answer = await self.send(requests.review(question, self.namespace))
        return bool(answer["status"]["allowed"])

    async def text(self, path: str) -> str:
        answer = await self._http.request(HttpRequest("GET", path), f"GET {path}", changes_nothing=True)
        return answer.decode(errors="replace")

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
        description = _describe(request)
        changes_nothing = requests.changes_nothing(request)
        call = HttpRequest(
            request.method,
            request.path(self.namespace),
            query=request.query,
            content=request.content,
            content_type=request.content_type,
            headers=request.headers,
        )
        answer = await self._http.request(call, description, changes_nothing=changes_nothing)
        return _json(answer, description)

    async def close(self) -> None:
        await self._http.close()


def _describe(request: Request) -> str:
    """A request in few words, for errors: `PATCH rollouts/support-llm/status`."""
    parts = (request.resource.plural, request.name, request.subresource)
    return f"{request.method} {'/'.join(part for part in parts if part)}"


def _json(body: str | bytes, description: str) -> Json:
    try:
        answer = json_of(body)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        # A proxy or a login page in between.
        raise Unreachable(
            f"{description}: something answered that is no API server",
            hint="check the server in the kubeconfig: a proxy or a login page answers",
        )
    return answer


def connect(
    context: str | None = None,
    *,
    clock: Clock,
    namespace: str | None = None,
    kubeconfig: str | None = None,
    retry_seconds: float = RETRY_SECONDS,
) -> KubeClient:
    """A client for one namespace of one cluster; nothing is asked before the first request.

    Args:
        context: None for the current one, or the pod's own cluster where there is no kubeconfig.
        clock: for pauses between tries and for the ends of credentials.
        namespace: None for the context's.
        kubeconfig: overrules `KUBECONFIG`.
        retry_seconds: how long a request is retried; 0 for a single attempt.

    Raises:
        NoAccess: when no `namespace` is given and there is no such context.
    """
    return KubeClient(
        credential_provider(context, clock=clock, kubeconfig=kubeconfig),
        namespace=namespace or namespace_of(context, kubeconfig=kubeconfig),
        clock=clock,
        retry_seconds=retry_seconds,
    )
