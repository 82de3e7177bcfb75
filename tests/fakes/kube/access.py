"""Who may do what: bearer tokens, and RBAC rules as a Role has them (Kubernetes, "Using RBAC Authorization")."""

from __future__ import annotations

from typing import Any

from fakes.kube.call import Call
from fakes.kube.refusal import Refusal, unauthorized

Json = dict[str, Any]

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
