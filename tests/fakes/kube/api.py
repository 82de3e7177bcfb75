"""The HTTP face of a cluster: a request comes in, an answer goes out; no sockets here.

What a server says about itself ("Discovery API"), what it does with fields that a kind does not have and values that
it cannot have ("Server Side Field Validation", "Custom Resources: Field pruning", by the product's own schemas), and
requests for resources as calls of the cluster.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from email.utils import format_datetime
from enum import StrEnum
from typing import Any

import yaml
from fakes.kube.cluster import FakeCluster
from fakes.kube.reads import Pages
from fakes.kube.refusal import Cause, Refusal, bad_request, invalid, no_such_path
from fakes.kube.requests import Access, Asked, Call, Effect, Faults, LoseAnswer, LoseRequest, Meanwhile, Refuse, call_of
from fakes.kube.store import Kind
from pydantic_core import to_json

from rollouts.kube.model import PatchKind, Resource
from rollouts.kube.resources import PODS
from rollouts.manifests.schema import SchemaProblem, problems_in
from tidegate.core.model import Json

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_VERBS = ["create", "delete", "get", "list", "patch", "update"]


def document(cluster: FakeCluster, asked: Asked) -> Json:
    """The document at a path that is no resource.

    Raises:
        Refusal: there is none (404).
    """
    parts = asked.path.strip("/").split("/")
    if asked.path == "/version":
        major, minor, *_ = cluster.git_version.removeprefix("v").split(".")
        return {"major": major, "minor": minor, "gitVersion": cluster.git_version, "platform": "linux/amd64"}
    if parts == ["api"]:
        return {"kind": "APIVersions", "versions": ["v1"]}
    if parts == ["apis"]:
        groups = sorted({kind.group for kind in cluster.kinds if kind.group})
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(cluster, name) for name in groups]}
    if parts[0] == "apis" and len(parts) == 2 and any(kind.group == parts[1] for kind in cluster.kinds):
        return {"kind": "APIGroup", "apiVersion": "v1"} | _group(cluster, parts[1])
    wanted = "/".join(parts[1:])
    found = [kind for kind in cluster.kinds if kind.api_version == wanted]
    if parts[0] not in ("api", "apis") or not found:
        raise no_such_path()
    resources: list[Json] = []
    for kind in found:
        one: Json = {"name": kind.plural, "singularName": kind.kind.lower(), "namespaced": kind.namespaced}
        resources.append(one | {"kind": kind.kind, "verbs": _VERBS})
        if kind.status:
            status = one | {"name": f"{kind.plural}/status", "kind": kind.kind, "verbs": ["get", "patch", "update"]}
            resources.append(status)
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": wanted, "resources": resources}


def _group(cluster: FakeCluster, name: str) -> Json:
    versions = sorted({kind.version for kind in cluster.kinds if kind.group == name}, reverse=True)
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


class FieldValidation(StrEnum):
    """The query parameter `fieldValidation`."""

    STRICT = "Strict"
    """An unknown field is refused."""
    WARN = "Warn"
    """An unknown field is dropped with a warning: what a server does when it is not asked for anything."""
    IGNORE = "Ignore"
    """An unknown field is dropped without a word."""


class FieldCheck:
    """The checks of one request; what was wrong before and was not touched passes (`CRDValidationRatcheting`)."""

    def __init__(self, how: FieldValidation) -> None:
        self._how = how
        self.warnings: list[str] = []
        """What the answer's Warning header says."""

    def decoded(self, kind: Kind, body: Json, before: Json | None) -> Json:
        """The body without nulls and without fields that its kind does not know.

        Raises:
            Refusal: there are such fields, and the request is strict (400).
        """
        if not _has_schema(kind):
            return body
        body = without_nulls(body)
        unknown = [problem for problem in _new_problems(body, before) if problem.unknown]
        if unknown and self._how is FieldValidation.STRICT:
            said = ", ".join(f'unknown field "{problem.path}"' for problem in unknown)
            raise bad_request(f"{_unreadable(kind)}: strict decoding error: {said}")
        for problem in unknown:
            _drop(body, problem)
            if self._how is FieldValidation.WARN:
                self.warnings.append(f'unknown field \\"{problem.path}\\"')
        return body

    def typed(self, kind: Kind, config: Json) -> Json:
        """What is applied, without nulls. It is typed first: how strict the request is does not matter then.

        Raises:
            Refusal: there are fields that the kind does not know (500 and no reason: the typing's own error).
        """
        if not _has_schema(kind):
            return config
        config = without_nulls(config)
        unknown = [problem for problem in _new_problems(config, None) if problem.unknown]
        if unknown:
            said = "; ".join(f".{problem.path}: field not declared in schema" for problem in unknown)
            metadata = config.get("metadata", {})
            what = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}; {kind.api_version}, Kind={kind.kind}"
            raise Refusal(500, "", f"failed to create typed patch object ({what}): {said}")
        return config

    def valid(self, kind: Kind, body: Json, before: Json | None) -> None:
        """Values are such as the schema allows.

        Raises:
            Refusal: some are not (422; 400 for built-in kinds, whose objects cannot even be decoded then).
        """
        if not _has_schema(kind):
            return
        wrong = [problem for problem in _new_problems(body, before) if not problem.unknown]
        if wrong and kind.custom:
            name = str(body.get("metadata", {}).get("name", ""))
            raise invalid(kind.kind, kind.group, name, tuple(_cause(problem) for problem in wrong))
        if wrong:
            raise bad_request(f"{_unreadable(kind)}: {'; '.join(str(problem) for problem in wrong)}")


def _has_schema(kind: Kind) -> bool:
    problems = problems_in({"apiVersion": kind.api_version, "kind": kind.kind})
    return all(problem.where != ("kind",) for problem in problems)


def _new_problems(body: Json, before: Json | None) -> list[SchemaProblem]:
    old = set() if before is None else {str(problem) for problem in problems_in(without_nulls(before))}
    return [problem for problem in problems_in(body) if str(problem) not in old]


def without_nulls(value: Any) -> Any:
    """A copy without fields that are null: for a built-in kind they are absent, from a custom one they are pruned."""
    if isinstance(value, dict):
        return {key: one if type(one) is str else without_nulls(one) for key, one in value.items() if one is not None}
    return [without_nulls(one) for one in value] if isinstance(value, (list, tuple)) else value


def _unreadable(kind: Kind) -> str:
    return f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'


def _cause(problem: SchemaProblem) -> Cause:
    if "required" in problem.message:
        return Cause("FieldValueRequired", "Required value", problem.path)
    return Cause("FieldValueInvalid", f"Invalid value: {problem.message}", problem.path)


def _drop(body: Json, problem: SchemaProblem) -> None:
    node: Any = body
    *way, last = problem.where
    for part in way:
        node = node[part]
    node.pop(last, None)


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
        return 200, self._cluster.shared(resource, call.name, namespace=call.namespace), ()

    def _list(self, resource: Resource, call: Call, asked: Asked) -> Served:
        """Items of a typed list have no apiVersion and kind of their own; those of custom resources do."""
        limit = int(asked.query.get("limit") or 0)
        token = asked.query.get("continue", "")
        if token:
            items, metadata = self._pages.following(token, limit=limit)
        else:
            query = asked.query
            found = self._cluster.all_shared(
                resource,
                labels=query.get("labelSelector", ""),
                fields=query.get("fieldSelector", ""),
                namespace=call.namespace,
            )
            items, metadata = self._pages.page(list(found), limit=limit)
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
            dry_run=_dry(asked.query) or options.get("dryRun") == ["All"],
        )
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
            return yaml.load(asked.body, Loader=_LOADER)
        return json.loads(asked.body)
    except (ValueError, yaml.YAMLError) as error:
        raise bad_request(f"the object provided is unrecognized: {error}") from error


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


class Api:
    """What one API server does with a request: faults, then who asks, then what may be done, then doing it."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.faults = Faults()
        self.access = Access()
        self.texts: dict[str, Callable[[], str]] = {}
        """Plain answers by path: metrics through the service proxy, a pod's log."""
        self.pods: dict[str, Callable[[Asked], Reply]] = {}
        """By the name of a pod: its server, as the API server's proxy reaches it (`POD:PORT`)."""
        self.clock_skew_seconds = 0.0
        """How far the server's clock is ahead, as its Date header tells."""
        self.calls: list[Call] = []
        """Every request that got through, in order."""
        self._verbs = Verbs(cluster, self.access, Pages(cluster.store))

    def vanish(self) -> None:
        """The region cannot be reached any more; it goes on by itself."""
        self.faults.vanished = True

    def come_back(self) -> None:
        self.faults.vanished = False

    def answer(self, asked: Asked) -> Reply:
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

    def _served(self, call: Call, asked: Asked, effects: list[Effect]) -> Reply:
        for effect in effects:
            if isinstance(effect, Meanwhile):
                effect.happens(call)
            if isinstance(effect, Refuse):
                raise effect.refusal
        self.access.check(call, asked.headers.get("authorization", ""))
        if asked.method == "GET" and asked.path in self.texts:
            return Reply(200, self.texts[asked.path]().encode(), self._headers("text/plain; charset=utf-8"))
        if not call.plural:
            return self._json(200, document(self.cluster, asked))
        if call.plural == "pods" and call.subresource == "proxy":
            return self._proxied(call, asked)
        code, body, warnings = self._verbs.serve(call, asked)
        return self._json(code, body, warnings)

    def _proxied(self, call: Call, asked: Asked) -> Reply:
        """What a pod's own server says; it does not see `Authorization`, which authentication drops."""
        name = call.name.partition(":")[0]
        self.cluster.shared(PODS, name, namespace=call.namespace)
        if name not in self.pods:
            raise Refusal(503, "ServiceUnavailable", f"error trying to reach service: dial tcp: {name} refused")
        passed = {key: value for key, value in asked.headers.items() if key != "authorization"}
        path = asked.path.partition("/proxy")[2]
        return self.pods[name](replace(asked, path=path, headers=passed))

    def _refused(self, refusal: Refusal) -> Reply:
        headers = {} if refusal.retry_after is None else {"retry-after": str(refusal.retry_after)}
        reply = self._json(refusal.code, refusal.status())
        return Reply(reply.code, reply.body, reply.headers | headers)

    def _json(self, code: int, body: Json, warnings: tuple[str, ...] = ()) -> Reply:
        headers = self._headers("application/json")
        if warnings:
            headers["warning"] = ", ".join(f'299 - "{warning}"' for warning in warnings)
        return Reply(code, to_json(body), headers)

    def _headers(self, content_type: str) -> dict[str, str]:
        now = self.cluster.time.now()
        skewed = type(now).fromtimestamp(now.timestamp() + self.clock_skew_seconds, now.tzinfo)
        return {"content-type": content_type, "date": format_datetime(skewed, usegmt=True)}
