"""What a request asks for, whether its sender may, and what can go wrong with it.

Read from its method and path (`k8s.io/apiserver`'s `RequestInfo`); allowed by bearer tokens, and RBAC rules as a Role
has them (Kubernetes, "Using RBAC Authorization"); disturbed on demand and in a known order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from fakes.kube.refusal import Refusal, unauthorized

from tidegate.core.model import Json

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


@dataclass(frozen=True)
class Asked:
    """One HTTP request, whichever way it came."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case."""
    body: bytes = b""


@dataclass(frozen=True)
class Call:
    """What access rules and faults are about: a verb on a resource."""

    verb: str
    """get, list, create, update, patch, delete, deletecollection; lower-case method where it is no resource."""
    group: str = ""
    version: str = ""
    plural: str = ""
    """Empty for a path that is no resource, such as `/version`."""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    path: str = ""


def call_of(asked: Asked) -> Call:
    """`/apis/GROUP/VERSION[/namespaces/NS]/PLURAL[/NAME[/SUB[/MORE]]]`, or `/api/v1/…` for the core group."""
    parts = [unquote(part) for part in asked.path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return Call(verb=asked.method.lower(), path=asked.path)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] != "status":
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = rest[0], rest[1] if len(rest) > 1 else "", rest[2] if len(rest) > 2 else ""
    return Call(_verb(asked, name), group, version, plural, namespace, name, subresource, asked.path)


def _verb(asked: Asked, name: str) -> str:
    if asked.method == "DELETE":
        return "delete" if name else "deletecollection"
    if asked.method == "GET":
        return "get" if name else "list"
    return _VERBS.get(asked.method, asked.method.lower())


TOKEN = "fake-token"
"""Valid from the start."""

_ALL = ({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},)
_ALWAYS = ("selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews")
"""What everybody may create who is known at all (`system:basic-user`)."""


class Access:
    """One user with one set of rules. At first everything is allowed, with and without a token."""

    def __init__(self, user: str = "tidegate") -> None:
        self.user = user
        self.tokens: set[str] | None = None
        """Those that are valid; None where nobody is asked for one."""
        self._rules: tuple[Json, ...] = _ALL
        self._cluster_rules: tuple[Json, ...] = _ALL

    def require(self, *tokens: str) -> None:
        """From now on only these are known; an old one is answered 401, as after it expired."""
        self.tokens = set(tokens)

    def allow_only(self, *rules: Json, everywhere: tuple[Json, ...] = ()) -> None:
        """A Role's `rules` in every namespace, and a ClusterRole's for cluster-wide kinds and paths."""
        self._rules, self._cluster_rules = tuple(rules) + everywhere, everywhere

    def check(self, call: Call, authorization: str) -> None:
        """Let the call through.

        Raises:
            Refusal: unknown token (401), or not allowed (403).
        """
        scheme, _, token = authorization.partition(" ")
        if self.tokens is not None and (scheme.lower() != "bearer" or token not in self.tokens):
            raise unauthorized()
        if call.plural and not self.allows(call):
            raise self._forbidden(call)

    def allows(self, call: Call) -> bool:
        """Whether any rule grants it; RBAC has no rule that denies."""
        if call.plural in _ALWAYS:
            return True
        rules = self._rules if call.namespace else self._cluster_rules
        return any(_grants(rule, call) for rule in rules)

    def review(self, spec: Json) -> Json:
        """The status of a SelfSubjectAccessReview."""
        asked = spec.get("resourceAttributes") or {}
        call = Call(
            verb=asked.get("verb", ""),
            group=asked.get("group", ""),
            version=asked.get("version", ""),
            plural=asked.get("resource", ""),
            namespace=asked.get("namespace", ""),
            name=asked.get("name", ""),
            subresource=asked.get("subresource", ""),
        )
        allowed = self.allows(call)
        return {"allowed": allowed} | ({"reason": f'RBAC: allowed for user "{self.user}"'} if allowed else {})

    def _forbidden(self, call: Call) -> Refusal:
        resource = f"{call.plural}/{call.subresource}" if call.subresource else call.plural
        qualified = f"{call.plural}.{call.group}" if call.group else call.plural
        where = f'in the namespace "{call.namespace}"' if call.namespace else "at the cluster scope"
        named = f'{qualified} "{call.name}"' if call.name else qualified
        message = (
            f'{named} is forbidden: User "{self.user}" cannot {call.verb} resource "{resource}" '
            f'in API group "{call.group}" {where}'
        )
        return Refusal(403, "Forbidden", message, details={"name": call.name, "group": call.group, "kind": call.plural})


def _grants(rule: Json, call: Call) -> bool:
    """`rbac.RuleAllows`: a rule with names never grants create or list of the whole collection."""
    resource = f"{call.plural}/{call.subresource}" if call.subresource else call.plural
    return (
        _covers(rule.get("verbs"), call.verb)
        and _covers(rule.get("apiGroups"), call.group)
        and (_covers(rule.get("resources"), resource) or f"*/{call.subresource}" in rule.get("resources", ()))
        and (not rule.get("resourceNames") or call.name in rule["resourceNames"])
    )


def _covers(granted: Any, wanted: str) -> bool:
    return "*" in (granted or ()) or wanted in (granted or ())


WRITES = ("create", "update", "patch", "delete")


@dataclass(frozen=True)
class Refuse:
    """An answer of failure instead of the answer; nothing is done."""

    refusal: Refusal


@dataclass(frozen=True)
class LoseRequest:
    """The connection does not come about; nothing is done."""


@dataclass(frozen=True)
class LoseAnswer:
    """It is done, and the connection breaks before the answer."""


@dataclass(frozen=True)
class Meanwhile:
    """Something happens just before the request is served, such as somebody else's write to the same object."""

    happens: Callable[[Call], None]


Effect = Refuse | LoseRequest | LoseAnswer | Meanwhile


@dataclass
class Fault:
    """An effect on the calls that match, so many times."""

    effect: Effect
    verbs: tuple[str, ...] = ()
    """Empty for all."""
    plural: str = ""
    name: str = ""
    subresource: str | None = None
    times: int | None = 1
    """None for always."""
    after: int = 0
    """Matching calls that pass first."""

    def strikes(self, call: Call) -> bool:
        """Whether it does, counted."""
        if (
            (self.verbs and call.verb not in self.verbs)
            or (self.plural and call.plural != self.plural)
            or (self.name and call.name != self.name)
            or (self.subresource is not None and call.subresource != self.subresource)
            or self.times == 0
        ):
            return False
        if self.after:
            self.after -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


class Faults:
    """The faults of one cluster, and whether it can be reached at all."""

    def __init__(self) -> None:
        self.vanished = False
        """Every request fails to connect, until it is back."""
        self._faults: list[Fault] = []
        self._once_each: list[tuple[Fault, set[Call]]] = []

    def add(self, *faults: Fault) -> None:
        self._faults.extend(faults)

    def clear(self) -> None:
        """Nothing goes wrong any more."""
        self._faults.clear()
        self._once_each.clear()
        self.vanished = False

    def once_each(self, fault: Fault) -> None:
        """The first call of every kind (verb, object, subresource) that matches meets it; the second passes."""
        fault.times = None
        self._once_each.append((fault, set()))

    def busy(self, *, retry_after: int = 1, verbs: tuple[str, ...] = (), times: int | None = 1) -> None:
        """429 with Retry-After (API Priority and Fairness)."""
        refusal = Refusal(429, "TooManyRequests", "too many requests, please try again later", retry_after=retry_after)
        self.add(Fault(Refuse(refusal), verbs=verbs, times=times))

    def struck(self, call: Call) -> list[Effect]:
        """What this call meets: the first fault that fits, and whatever happens meanwhile."""
        effects: list[Effect] = []
        for fault, seen in [*((one, None) for one in self._faults), *self._once_each]:
            if (seen is None or call not in seen) and fault.strikes(call):
                if seen is not None:
                    seen.add(call)
                effects.append(fault.effect)
                if not isinstance(fault.effect, Meanwhile):
                    break
        return effects
