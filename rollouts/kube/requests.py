"""Requests to an API server, and the errors that its refusals stand for. Pure: a test sees what goes over the wire.

A refusal has a `Status` body (`k8s.io/apimachinery/pkg/apis/meta/v1.Status`: `reason` is for programs, `message` for
people), or whatever a proxy before the server said.
"""

from __future__ import annotations

from collections.abc import Mapping

from rollouts.errors import ApiError, Conflict, Forbidden, Gone, Invalid, NotFound, TooManyRequests, Unauthorized
from rollouts.kube.model import MANAGER, AccessReview, Body, PatchKind, Request, Resource
from rollouts.kube.resources import ACCESS_REVIEWS, PODS, resource_of
from tidegate.core.model import Json
from tidegate.core.text import json_of
from tidegate.core.units import read_retry_after

PAGE = 500
"""Objects in one answer to a list: client-go's own page, which etcd and the API server's memory bear."""

STRICT = {"fieldManager": MANAGER, "fieldValidation": "Strict"}
"""Without it the API server drops a field that it does not know and says so to nobody (argo-rollouts#4569)."""

DRY_RUN = {"dryRun": "All"}


def get(resource: Resource, name: str, namespace: str | None = None) -> Request:
    return Request(method="GET", resource=resource, name=name, namespace=namespace)


def collection(resource: Resource, *, labels: str = "", fields: str = "", namespace: str | None = None) -> Request:
    """All of a kind that match."""
    query = {"labelSelector": labels, "fieldSelector": fields}
    return Request(
        method="GET",
        resource=resource,
        namespace=namespace,
        query={key: value for key, value in query.items() if value},
    )


def list_page(whole: Request, after: str = "") -> Request:
    """The first page of a collection, or the one that `after`, the last page's `continue`, names."""
    more = {"limit": str(PAGE)} | ({"continue": after} if after else {})
    return whole.model_copy(update={"query": {**whole.query, **more}})


def create(resource: Resource, body: Json) -> Request:
    return Request(method="POST", resource=resource, namespace=_namespace(body), body=body, query=STRICT)


def apply(body: Json, *, force: bool = False, dry_run: bool = False) -> Request:
    """Server-side apply; where it goes stands in the manifest."""
    return Request(
        method="PATCH",
        resource=resource_of(body),
        name=body["metadata"]["name"],
        namespace=_namespace(body),
        patch=PatchKind.APPLY,
        body=body,
        query=STRICT | ({"force": "true"} if force else {}) | (DRY_RUN if dry_run else {}),
    )


def patch(
    resource: Resource,
    name: str,
    body: Body,
    *,
    kind: PatchKind = PatchKind.MERGE,
    subresource: str = "",
    dry_run: bool = False,
    namespace: str | None = None,
) -> Request:
    return Request(
        method="PATCH",
        resource=resource,
        name=name,
        namespace=namespace,
        subresource=subresource,
        patch=kind,
        body=body,
        query=STRICT | (DRY_RUN if dry_run else {}),
    )


def replace(resource: Resource, body: Json) -> Request:
    return Request(
        method="PUT",
        resource=resource,
        name=body["metadata"]["name"],
        namespace=_namespace(body),
        body=body,
        query=STRICT,
    )


def delete(resource: Resource, name: str, namespace: str | None = None) -> Request:
    return Request(
        method="DELETE",
        resource=resource,
        name=name,
        namespace=namespace,
        query={"propagationPolicy": "Background"},
    )


def post_to_pod(pod: str, port: int, path: str, headers: Mapping[str, str]) -> Request:
    """A POST without a body to a pod's own server, through the API server, which keeps `Authorization` to itself."""
    subresource = f"proxy/{path.lstrip('/')}"
    return Request(method="POST", resource=PODS, name=f"{pod}:{port}", subresource=subresource, headers=headers)


def review(question: AccessReview, namespace: str) -> Request:
    """A SelfSubjectAccessReview; `namespace` counts when the question names none."""
    where = namespace if question.namespace is None else question.namespace
    attributes = {
        "namespace": where if question.resource.namespaced else "",
        "verb": question.verb,
        "group": question.resource.group,
        "version": question.resource.version,
        "resource": question.resource.plural,
        "subresource": question.subresource,
        "name": question.name,
    }
    return create(
        ACCESS_REVIEWS,
        {
            "apiVersion": ACCESS_REVIEWS.api_version,
            "kind": ACCESS_REVIEWS.kind,
            "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
        },
    )


def changes_nothing(request: Request) -> bool:
    """Whether it may be repeated at will: it reads, asks about rights, or is a dry run."""
    return request.method == "GET" or request.resource == ACCESS_REVIEWS or "dryRun" in request.query


def _namespace(body: Json) -> str | None:
    return body.get("metadata", {}).get("namespace") or None


KINDS: Mapping[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}

UNTYPED = "failed to create typed patch object"
"""How a server begins to say that an applied object does not fit its kind's schema."""

NO_SUCH_PATH = b"404 page not found"
"""How an API server answers for a kind that it does not serve, as its definition is not there: without a `Status`."""

BODY_CHARACTERS = 2000
"""How much of an answer that is no `Status` is kept for `--debug`."""


def refusal(description: str, status: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """The error for an answer of 400 and above; `description` is such as `GET rollouts/support-llm`."""
    reply = _status_in(body)
    if reply is None:
        # A proxy or load balancer in between speaks HTML, or nothing.
        text = body.decode(errors="replace")[:BODY_CHARACTERS]
        said = (
            "as API servers do for a kind that they do not serve"
            if body.strip() == NO_SUCH_PATH
            else "not by the API server itself"
        )
        return KINDS.get(status, ApiError)(
            f"{description}: answered {status}, {said}",
            status=status,
            retry_after_seconds=read_retry_after(retry_after),
            detail=text or None,
        )
    status = int(reply.get("code") or status)
    details = reply.get("details") or {}
    kind = Invalid if _no_such_field(status, reply) else KINDS.get(status, ApiError)
    asked = read_retry_after(retry_after)
    return kind(
        f"{description}: {reply.get('message') or reply.get('reason') or 'no reason given'}",
        status=status,
        reason=reply.get("reason") or "",
        retry_after_seconds=asked if asked is not None else read_retry_after(details.get("retryAfterSeconds")),
    )


def _no_such_field(status: int, reply: Json) -> bool:
    """Whether an apply was refused for what is in it, which API servers up to 1.35 at least answer with a bare 500.

    They type the applied object before they look at `fieldValidation`, and the typing's error has no status of its own
    (`managedfields/internal/structuredmerge.go`: `Apply`).
    """
    return status == 500 and str(reply.get("message") or "").startswith(UNTYPED)


def _status_in(body: bytes) -> Json | None:
    try:
        reply = json_of(body)
    except ValueError:
        return None
    return reply if isinstance(reply, dict) and reply.get("kind") == "Status" else None
