"""A ValidatingAdmissionPolicy and its binding: what an API server refuses by itself, in CEL. Kubernetes 1.30 or later.

Role and binding say which kinds an account may write, and cannot say what stands in them: the one who may create
Rollouts may run any pod of the namespace. This says it, in the API server's own process: there is no webhook that could
be away.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from rollouts.kube.model import NAME_OF_NAMESPACE, Resource
from rollouts.kube.resources import ADMISSION_BINDINGS, ADMISSION_POLICIES
from rollouts.manifests.conventions import cluster_wide
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY, MANAGED_BY

Demands = Mapping[str, str]
"""What has to hold, in CEL, by what the one who is refused reads."""

CONTAINERS = "variables.pod.containers + (has(variables.pod.initContainers) ? variables.pod.initContainers : [])"
"""Init containers are among the containers."""

HOST: Demands = {
    "nothing of the node's is shared: no network, port, process, memory or folder, and no privilege": (
        "!(has(variables.pod.hostNetwork) && variables.pod.hostNetwork) "
        "&& !(has(variables.pod.hostPID) && variables.pod.hostPID) "
        "&& !(has(variables.pod.hostIPC) && variables.pod.hostIPC) "
        "&& (!has(variables.pod.volumes) || variables.pod.volumes.all(v, !has(v.hostPath))) "
        "&& variables.containers.all(c, (!has(c.ports) || c.ports.all(p, !has(p.hostPort))) "
        "&& (!has(c.securityContext) || (!(has(c.securityContext.privileged) && c.securityContext.privileged) "
        "&& !(has(c.securityContext.capabilities) && has(c.securityContext.capabilities.add)))))"
    )
}


def policy_and_binding(
    delivery: str,
    namespace: str,
    what: str,
    resources: Iterable[Resource],
    demands: Demands,
    *,
    operations: tuple[str, ...] = ("CREATE", "UPDATE"),
    chosen_by: Mapping[str, str] | None = None,
    only: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
) -> tuple[Json, Json]:
    """The policy, and the binding without which it is a text.

    A request that cannot be judged is refused: a field that is missing is no way past a demand on it.

    Args:
        delivery: whose policy it is.
        namespace: the only one that it is about.
        what: makes its name, after the delivery's.
        resources: kinds of objects.
        demands: on each of them.
        operations: of the API server.
        chosen_by: labels that an object has to have for the demands to be about it; all objects when absent.
        only: CEL by name: requests of which one does not hold are none of the policy's business.
        variables: CEL by name; a later one may use an earlier one.
    """
    metadata = {"name": cluster_wide(namespace, f"{delivery}-{what}"), "labels": {**MANAGED_BY, DELIVERY: delivery}}
    rules = [
        {
            "apiGroups": [resource.group],
            "apiVersions": ["*"],
            "operations": list(operations),
            "resources": [resource.plural],
        }
        for resource in resources
    ]
    constraints: Json = {"namespaceSelector": {"matchLabels": {NAME_OF_NAMESPACE: namespace}}, "resourceRules": rules}
    if chosen_by:
        constraints["objectSelector"] = {"matchLabels": dict(chosen_by)}
    spec: Json = {
        "failurePolicy": "Fail",
        "matchConstraints": constraints,
        **({"matchConditions": _named(only)} if only else {}),
        **({"variables": _named(variables)} if variables else {}),
        "validations": [{"expression": holds, "message": message} for message, holds in demands.items()],
    }
    binding: Json = {"policyName": metadata["name"], "validationActions": ["Deny"]}
    both = ((ADMISSION_POLICIES, spec), (ADMISSION_BINDINGS, binding))
    policy, bound = (
        {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": said} for kind, said in both
    )
    return policy, bound


def images_from(repositories: Iterable[str]) -> str:
    """A pattern of images by digest: of these repositories, as the trust file names them; of any when there is none."""
    named = "|".join(_pattern(each) for each in repositories)
    return f"^({named or '[^@]+'})(:[^@/]+)?@sha256:[0-9a-f]{{64}}$"


def cel(word: str | Iterable[str]) -> str:
    """A string or a list of strings, as CEL writes it."""
    return json.dumps(word if isinstance(word, str) else list(word))


def user_of(namespace: str, account: str) -> str:
    """What an API server calls a service account."""
    return f"system:serviceaccount:{namespace}:{account}"


def _pattern(repository: str) -> str:
    return f"{re.escape(repository[:-1])}[^@]+" if repository.endswith("/*") else re.escape(repository)


def _named(expressions: Mapping[str, str]) -> list[Json]:
    return [{"name": name, "expression": expression} for name, expression in expressions.items()]
