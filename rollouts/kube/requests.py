"""What is asked, as requests: pure, so that tests and `--debug` see what goes over the wire before it goes."""

from __future__ import annotations

from rollouts.kube.model import AccessQuestion, Body, Json, PatchKind, Request, Resource
from rollouts.kube.resources import ACCESS_REVIEWS, resource_of

MANAGER = "tidegate"
"""Our field manager: server-side apply refuses what another manager owns, and takes back what we no longer say."""

PAGE = 500
"""Objects in one answer to a list: client-go's own page, which etcd and the API server's memory bear."""

STRICT = {"fieldManager": MANAGER, "fieldValidation": "Strict"}
"""Without it the API server drops a field that it does not know and says so to nobody (argo-rollouts#4569)."""

DRY_RUN = {"dryRun": "All"}


def get(resource: Resource, name: str, namespace: str | None = None) -> Request:
    return Request(method="GET", resource=resource, name=name, namespace=namespace)


def collection(resource: Resource, *, labels: str = "", fields: str = "", namespace: str | None = None) -> Request:
    """All of a kind that match; the root of a list and of a watch."""
    query = {"labelSelector": labels, "fieldSelector": fields}
    return Request(
        method="GET",
        resource=resource,
        namespace=namespace,
        query={key: value for key, value in query.items() if value},
    )


def page(whole: Request, after: str = "") -> Request:
    """The first page of a collection, or the one that `after`, the last page's `continue`, names."""
    return _asking(whole, {"limit": str(PAGE)} | ({"continue": after} if after else {}))


def stream(whole: Request, *, since: str, seconds: int) -> Request:
    """What changes in a collection after the resource version `since`; the server ends it after `seconds`."""
    return _asking(
        whole,
        {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": since, "timeoutSeconds": str(seconds)},
    )


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


def review(question: AccessQuestion, namespace: str) -> Request:
    """A SelfSubjectAccessReview; `namespace` counts when the question names none."""
    where = namespace if question.namespace is None else question.namespace
    asked = {
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
            "spec": {"resourceAttributes": {key: value for key, value in asked.items() if value}},
        },
    )


def changes_nothing(request: Request) -> bool:
    """Whether it may be said any number of times: it reads, asks about rights, or only pretends to write."""
    return request.method == "GET" or request.resource == ACCESS_REVIEWS or "dryRun" in request.query


def _asking(whole: Request, more: dict[str, str]) -> Request:
    return whole.model_copy(update={"query": {**whole.query, **more}})


def _namespace(body: Json) -> str | None:
    return body.get("metadata", {}).get("namespace") or None
