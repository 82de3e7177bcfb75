"""Requests for resources, as calls of the cluster: bodies, content types and query parameters in, bodies out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml
from fakes.kube.access import Access
from fakes.kube.call import Asked, Call
from fakes.kube.cluster import FakeCluster
from fakes.kube.pages import Pages
from fakes.kube.refusal import Refusal, bad_request, no_such_path
from fakes.kube.validation import FieldCheck, FieldValidation

from rollouts.kube.model import PatchKind, Resource

Json = dict[str, Any]
Served = tuple[int, Json, tuple[str, ...]]
"""Status code, body, warnings."""

_PATCHES = ", ".join((PatchKind.JSON, PatchKind.MERGE, PatchKind.APPLY))


class Verbs:
    """One method for each verb."""

    def __init__(self, cluster: FakeCluster, access: Access, pages: Pages) -> None:
        self._cluster = cluster
        self._access = access
        self._pages = pages

    def serve(self, call: Call, asked: Asked) -> Served:
        """Do it.

        Raises:
            Refusal: it cannot be done.
        """
        if call.plural == "selfsubjectaccessreviews" and call.verb == "create":
            body = _parsed(asked)
            return 201, body | {"status": self._access.review(body.get("spec") or {})}, ()
        kind = self._cluster.served(call.group, call.plural, call.version)
        resource = Resource(
            group=kind.group, version=kind.version, plural=kind.plural, kind=kind.kind, namespaced=kind.namespaced
        )
        if call.subresource not in ("", "status") or (call.subresource and not kind.status):
            raise no_such_path()
        verb = getattr(self, f"_{call.verb}", None)
        if verb is None:
            raise Refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
        served: Served = verb(resource, call, asked)
        return served

    def _get(self, resource: Resource, call: Call, asked: Asked) -> Served:
        return 200, self._cluster.get(resource, call.name, namespace=call.namespace), ()

    def _list(self, resource: Resource, call: Call, asked: Asked) -> Served:
        """Items of a typed list have no apiVersion and kind of their own; those of custom resources do."""
        limit = int(asked.query.get("limit") or 0)
        token = asked.query.get("continue", "")
        if token:
            items, metadata = self._pages.following(token, limit=limit)
        else:
            query = asked.query
            found = self._cluster.list(
                resource,
                labels=query.get("labelSelector", ""),
                fields=query.get("fieldSelector", ""),
                namespace=call.namespace,
            )
            chosen = query.get("labelSelector") or query.get("fieldSelector")
            items, metadata = self._pages.page(found, limit=limit, counts=not chosen)
        if not self._cluster.served(resource.group, resource.plural).custom:
            items = [{key: part for key, part in item.items() if key not in ("apiVersion", "kind")} for item in items]
        body = {"apiVersion": resource.api_version, "kind": f"{resource.kind}List", "metadata": metadata}
        return 200, body | {"items": items}, ()

    def _create(self, resource: Resource, call: Call, asked: Asked) -> Served:
        if call.name:
            raise Refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
        check = _check(asked)
        created = self._cluster.create(
            resource, _parsed(asked), namespace=call.namespace, check=check, **_options(asked)
        )
        return 201, created, tuple(check.warnings)

    def _update(self, resource: Resource, call: Call, asked: Asked) -> Served:
        body = _parsed(asked)
        if (body.get("metadata") or {}).get("name") != call.name:
            raise bad_request(f"the name of the object does not match the name on the URL ({call.name})")
        check = _check(asked)
        where: Json = {"namespace": call.namespace, "subresource": call.subresource}
        updated = self._cluster.update(resource, body, check=check, **where, **_options(asked))
        return 200, updated, tuple(check.warnings)

    def _patch(self, resource: Resource, call: Call, asked: Asked) -> Served:
        content_type = asked.headers.get("content-type", "").split(";")[0].strip()
        if content_type not in {kind.value for kind in PatchKind}:
            said = f"the body of the request was in an unknown format - accepted media types include: {_PATCHES}"
            raise Refusal(415, "UnsupportedMediaType", said)
        check, kind = _check(asked), PatchKind(content_type)
        options: Json = {"namespace": call.namespace, "subresource": call.subresource} | _options(asked)
        if kind is PatchKind.APPLY:
            if "fieldManager" not in asked.query:
                raise bad_request(
                    "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value: is required for apply patch"
                )
            options["force"] = asked.query.get("force") == "true"
        existed = self._cluster.find(resource, call.name, namespace=call.namespace) is not None
        patched = self._cluster.patch(resource, call.name, _parsed(asked), kind=kind, check=check, **options)
        return 200 if existed else 201, patched, tuple(check.warnings)

    def _delete(self, resource: Resource, call: Call, asked: Asked) -> Served:
        options = _parsed(asked) if asked.body else {}
        policy = options.get("propagationPolicy") or asked.query.get("propagationPolicy") or "Background"
        gone = self._cluster.delete(
            resource,
            call.name,
            namespace=call.namespace,
            propagation=policy,
            preconditions=options.get("preconditions"),
            dry_run=_dry(asked.query) or options.get("dryRun") == ["All"],
        )
        if "deletionTimestamp" in gone["metadata"]:
            return 200, gone, ()
        details = {"name": call.name, "group": call.group, "kind": call.plural, "uid": gone["metadata"]["uid"]}
        return 200, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}, ()


def _options(asked: Asked) -> Json:
    """`fieldManager` is, where none is said, the first part of the user agent (`managerOrUserAgent`)."""
    agent = asked.headers.get("user-agent", "unknown").split("/")[0]
    return {"manager": asked.query.get("fieldManager") or agent, "dry_run": _dry(asked.query)}


def _check(asked: Asked) -> FieldCheck:
    """As the query's `fieldValidation` says; Warn is the server's own choice since 1.27.

    Raises:
        Refusal: it is none of the three (400).
    """
    said = asked.query.get("fieldValidation") or FieldValidation.WARN
    try:
        return FieldCheck(FieldValidation(said))
    except ValueError:
        raise bad_request(f"fieldValidation: Unsupported value: {said!r}") from None


def _dry(query: Mapping[str, str]) -> bool:
    return query.get("dryRun") == "All"


def _parsed(asked: Asked) -> Any:
    """JSON, or YAML where the content type says so.

    Raises:
        Refusal: it is neither (400), or in a format that only built-in kinds know upstream, and none here (415).
    """
    content_type = asked.headers.get("content-type", "")
    if "protobuf" in content_type or "cbor" in content_type:
        raise Refusal(415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {content_type}")
    try:
        if "yaml" in content_type:
            return yaml.safe_load(asked.body)
        return json.loads(asked.body)
    except (ValueError, yaml.YAMLError) as error:
        raise bad_request(f"the object provided is unrecognized: {error}") from error
