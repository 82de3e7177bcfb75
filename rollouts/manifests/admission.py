"""A ValidatingAdmissionPolicy and its binding: what an API server refuses by itself, in CEL. Kubernetes 1.30 or later.

Role and binding say which kinds an account may write, and cannot say what stands in them: the one who may create
Rollouts
may run any pod of the namespace. This says it, in the API server's own process: there is no webhook that could be away.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from pydantic import Field

from rollouts.kube.model import NAME_OF_NAMESPACE, Resource
from rollouts.kube.resources import ADMISSION_BINDINGS, ADMISSION_POLICIES
from tidegate.core.model import Json, Value


class Validation(Value):
    """What has to hold of an object."""

    holds: str
    """In CEL."""
    message: str
    """What the one who is refused reads."""


class AdmissionPolicy(Value):
    """Demands on the objects of some kinds in one namespace."""

    name: str
    namespace: str
    """The only one that it is about."""
    labels: Mapping[str, str]
    resources: tuple[Resource, ...]
    operations: tuple[str, ...] = ("CREATE", "UPDATE")
    chosen_by: Mapping[str, str] = Field(default={})
    """Labels that an object has to have for the demands to be about it; all objects when empty."""
    only: Mapping[str, str] = Field(default={})
    """CEL by name: requests of which one does not hold are none of the policy's business."""
    variables: Mapping[str, str] = Field(default={})
    """CEL by name; a later one may use an earlier one."""
    demands: tuple[Validation, ...]


def policy_and_binding(policy: AdmissionPolicy) -> tuple[Json, Json]:
    """The policy, and the binding without which it is a text.

    A request that cannot be judged is refused: a field that is missing is no way past a demand on it.
    """
    rules = [_rule(resource, policy.operations) for resource in policy.resources]
    here = {"matchLabels": {NAME_OF_NAMESPACE: policy.namespace}}
    constraints: Json = {"namespaceSelector": here, "resourceRules": rules}
    if policy.chosen_by:
        constraints["objectSelector"] = {"matchLabels": dict(policy.chosen_by)}
    spec: Json = {
        "failurePolicy": "Fail",
        "matchConstraints": constraints,
        **({"matchConditions": _named(policy.only)} if policy.only else {}),
        **({"variables": _named(policy.variables)} if policy.variables else {}),
        "validations": [{"expression": each.holds, "message": each.message} for each in policy.demands],
    }
    binding: Json = {"policyName": policy.name, "validationActions": ["Deny"]}
    return _object(ADMISSION_POLICIES, policy, spec), _object(ADMISSION_BINDINGS, policy, binding)


def cel_list(words: Iterable[str]) -> str:
    """A list of strings, as CEL writes it."""
    return json.dumps(list(words))


def cel_string(word: str) -> str:
    """A string, as CEL writes it."""
    return json.dumps(word)


def _rule(resource: Resource, operations: tuple[str, ...]) -> Json:
    return {
        "apiGroups": [resource.group],
        "apiVersions": ["*"],
        "operations": list(operations),
        "resources": [resource.plural],
    }


def _named(expressions: Mapping[str, str]) -> list[Json]:
    return [{"name": name, "expression": expression} for name, expression in expressions.items()]


def _object(resource: Resource, policy: AdmissionPolicy, spec: Json) -> Json:
    metadata = {"name": policy.name, "labels": dict(policy.labels)}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}
