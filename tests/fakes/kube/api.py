"""The HTTP face of a cluster: a request comes in, an answer goes out; no sockets here."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from email.utils import format_datetime
from typing import Any

from fakes.kube.cluster import FakeCluster
from fakes.kube.refusal import Refusal, bad_request, no_such_path
from fakes.kube.requests import Access, Asked, Call, Effect, Faults, LoseAnswer, LoseRequest, Meanwhile, Refuse, call_of
from fakes.kube.store import has_status, is_custom
from pydantic_core import to_json

from rollouts.kube.resources import PODS, SERVICES, PatchKind, Resource
from tidegate.core.model import Json

Served = tuple[int, Json]
"""Status code and body."""


def _options(asked: Asked) -> Json:
    """`fieldManager` is, where none is said, the first part of the user agent (`managerOrUserAgent`)."""
    agent = asked.headers.get("user-agent", "unknown").split("/")[0]
    return {
        "manager": asked.query.get("fieldManager") or agent,
        "dry_run": asked.query.get("dryRun") == "All",
    }


def _parsed(asked: Asked) -> Any:
    """
    Raises:
        Refusal: it is no JSON (400).
    """
    try:
        return json.loads(asked.body)
    except ValueError as error:
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
        """By the name of a pod or Service: its server, as the API server's proxy reaches it (`POD:PORT`)."""
        self.clock_skew_seconds = 0.0
        """How far the server's clock is ahead, as its Date header tells."""
        self.calls: list[Call] = []
        """Every request that got through, in order."""

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
            return self._json(200, _discovered(self.cluster, asked.path.strip("/").split("/")))
        if call.plural in {"pods", "services"} and call.subresource == "proxy":
            return self._proxied(call, asked)
        if call.plural == "selfsubjectaccessreviews" and call.verb == "create":
            review = _parsed(asked)
            return self._json(201, review | {"status": self.access.review(review.get("spec") or {})})
        return self._json(*self._done(call, asked))

    def _done(self, call: Call, asked: Asked) -> Served:
        """What the verb says is done."""
        cluster, kind = self.cluster, self.cluster.served(call.group, call.plural, call.version)
        if call.subresource not in ("", "status") or (call.subresource and not has_status(kind)):
            raise no_such_path()
        where: Json = {"namespace": call.namespace}
        match call.verb:
            case "get":
                return 200, cluster.shared(kind, call.name, **where)
            case "list":
                return 200, self._listed(kind, asked, call.namespace)
            case "create" if not call.name:
                return 201, cluster.create(kind, _parsed(asked), **where, **_options(asked))
            case "update":
                body = _parsed(asked)
                if (body.get("metadata") or {}).get("name") != call.name:
                    raise bad_request(f"the name of the object does not match the name on the URL ({call.name})")
                return 200, cluster.update(kind, body, **where, subresource=call.subresource, **_options(asked))
            case "patch":
                patch, options = PatchKind(asked.headers["content-type"]), where | _options(asked)
                if patch is PatchKind.APPLY:
                    options["force"] = asked.query.get("force") == "true"
                existed, body = cluster.find(kind, call.name, **where) is not None, _parsed(asked)
                options |= {"kind": patch, "subresource": call.subresource}
                return 200 if existed else 201, cluster.patch(kind, call.name, body, **options)
            case "delete":
                cluster.delete(kind, call.name, **where)
                return 200, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        raise Refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    def _listed(self, kind: Resource, asked: Asked, namespace: str) -> Json:
        """Items of a typed list have no apiVersion and kind of their own; those of custom resources do."""
        items = list(self.cluster.all_shared(kind, labels=asked.query.get("labelSelector", ""), namespace=namespace))
        if not is_custom(kind):
            items = [{key: part for key, part in item.items() if key not in ("apiVersion", "kind")} for item in items]
        metadata = {"resourceVersion": str(self.cluster.store.version)}
        return {"apiVersion": kind.api_version, "kind": f"{kind.kind}List", "metadata": metadata, "items": items}

    def _proxied(self, call: Call, asked: Asked) -> Reply:
        """What its own server says; it does not see `Authorization`, which authentication drops."""
        name = call.name.partition(":")[0]
        self.cluster.shared(PODS if call.plural == "pods" else SERVICES, name, namespace=call.namespace)
        if name not in self.pods:
            raise Refusal(503, "ServiceUnavailable", f"error trying to reach service: dial tcp: {name} refused")
        passed = {key: value for key, value in asked.headers.items() if key != "authorization"}
        path = asked.path.partition("/proxy")[2]
        return self.pods[name](replace(asked, path=path, headers=passed))

    def _refused(self, refusal: Refusal) -> Reply:
        headers = {} if refusal.retry_after is None else {"retry-after": str(refusal.retry_after)}
        reply = self._json(refusal.code, refusal.status())
        return Reply(reply.code, reply.body, reply.headers | headers)

    def _json(self, code: int, body: Json) -> Reply:
        return Reply(code, to_json(body), self._headers("application/json"))

    def _headers(self, content_type: str) -> dict[str, str]:
        now = self.cluster.time.now()
        skewed = type(now).fromtimestamp(now.timestamp() + self.clock_skew_seconds, now.tzinfo)
        return {"content-type": content_type, "date": format_datetime(skewed, usegmt=True)}


def _discovered(cluster: FakeCluster, path: list[str]) -> Json:
    """What the server says of itself and, to kubectl, of its kinds."""
    if path == ["version"]:
        return {"major": "1", "minor": "34", "gitVersion": "v1.34.1"}
    if path == ["api"]:
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == ["apis"]:
        groups = sorted({(kind.group, kind.version) for kind in cluster.kinds if kind.group})
        served = [{"groupVersion": f"{group}/{version}", "version": version} for group, version in groups]
        listed = [{"name": of, "versions": [one]} for (of, _), one in zip(groups, served, strict=True)]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
    found = [kind for kind in cluster.kinds if kind.api_version == "/".join(path[1:])]
    if not found:
        raise no_such_path()
    resources: list[Json] = []
    for kind in found:
        one: Json = {"kind": kind.kind, "singularName": kind.kind.lower(), "namespaced": kind.namespaced}
        resources += [
            one | {"name": name, "verbs": ["get", "patch"]} for name in (kind.plural, f"{kind.plural}/status")
        ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": found[0].api_version, "resources": resources}
