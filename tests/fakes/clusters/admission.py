"""Admission policies: judged as an API server does, by CEL, and what those of `rollout render` refuse.

One change each of what tidegate writes; the same are tried with a CEL library and by a real API server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import cel

from rollouts.kube.resources import resource_of
from tidegate.core.model import Json


class Refusing:
    """The policies among some objects, as far as they are bound."""

    def __init__(self, objects: Iterable[Json]) -> None:
        found = list(objects)
        bound = {
            each["spec"]["policyName"]
            for each in found
            if each["kind"] == "ValidatingAdmissionPolicyBinding" and "Deny" in each["spec"]["validationActions"]
        }
        self.policies = [
            each for each in found if each["kind"] == "ValidatingAdmissionPolicy" and each["metadata"]["name"] in bound
        ]

    def refusals(self, wanted: Json, *, user: str, old: Json | None = None) -> list[str]:
        """Why a write is refused, each reason once; none when it is let in."""
        request = {"userInfo": {"username": user, "groups": []}, "operation": "UPDATE" if old else "CREATE"}
        scope = {"object": wanted, "oldObject": old, "request": request}
        return list(dict.fromkeys(word for each in self.policies for word in _said(each["spec"], scope)))


def _said(spec: Json, scope: dict[str, Any]) -> Iterable[str]:
    wanted = scope["object"]
    constraints = spec["matchConstraints"]
    if not any(_concerns(rule, wanted, scope["request"]["operation"]) for rule in constraints["resourceRules"]):
        return
    chosen = constraints.get("objectSelector", {}).get("matchLabels", {})
    if not chosen.items() <= (wanted["metadata"].get("labels") or {}).items():
        return
    if (
        constraints["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
        != wanted["metadata"]["namespace"]
    ):
        return
    if not all(_holds(each["expression"], scope) for each in spec.get("matchConditions", ())):
        return
    variables: dict[str, Any] = {}
    for each in spec.get("variables", ()):
        # An API server evaluates a variable when it is used.
        with suppress(LookupError, ValueError, RuntimeError, TypeError):
            variables[each["name"]] = cel.evaluate(each["expression"], {**scope, "variables": variables})
    for each in spec["validations"]:
        if not _holds(each["expression"], {**scope, "variables": variables}):
            yield each["message"]


def _concerns(rule: Json, wanted: Json, operation: str) -> bool:
    resource = resource_of(wanted)
    return (
        resource.plural in rule["resources"] and resource.group in rule["apiGroups"] and operation in rule["operations"]
    )


def _holds(expression: str, scope: dict[str, Any]) -> bool:
    """What cannot be evaluated does not hold: `failurePolicy: Fail`."""
    try:
        return cel.evaluate(expression, scope) is True
    except (ValueError, RuntimeError, TypeError):
        return False


Change = Callable[[Json], object]


def spec(rollout: Json) -> Json:
    """Of its pods."""
    found: Json = rollout["spec"]["template"]["spec"]
    return found


def engine(rollout: Json) -> Json:
    """Its one container."""
    found: Json = spec(rollout)["containers"][0]
    return found


def repository(rollout: Json) -> str:
    """Of the engine's image."""
    return str(engine(rollout)["image"]).partition("@")[0]


OTHER = "registry.example.com/miner@sha256:" + "6" * 64
ROLLOUTS_OUTSIDE: dict[str, tuple[Change, str]] = {
    "another repository": (lambda it: engine(it).update(image=OTHER), "named by digest and come from"),
    "a repository whose name begins alike": (
        lambda it: engine(it).update(image=f"{repository(it)}-evil@sha256:{'7' * 64}"),
        "named by digest and come from",
    ),
    "a host that a dot would match": (
        lambda it: engine(it).update(image=f"{repository(it).replace('.', 'x', 1)}@sha256:{'7' * 64}"),
        "named by digest and come from",
    ),
    "a tag": (lambda it: engine(it).update(image=f"{repository(it)}:7"), "named by digest"),
    "another account": (lambda it: spec(it).update(serviceAccountName="default"), "service account"),
    "the account's token": (lambda it: spec(it).update(automountServiceAccountToken=True), "without its token"),
    "no account": (lambda it: spec(it).pop("serviceAccountName"), "service account"),
    "a folder of the node": (
        lambda it: spec(it)["volumes"].append({"name": "etc", "hostPath": {"path": "/etc"}}),
        "nothing of the node's",
    ),
    "the node's network": (lambda it: spec(it).update(hostNetwork=True), "nothing of the node's"),
    "the node's processes": (lambda it: spec(it).update(hostPID=True), "nothing of the node's"),
    "a port of the node": (lambda it: engine(it)["ports"][0].update(hostPort=80), "nothing of the node's"),
    "privileged": (lambda it: engine(it)["securityContext"].update(privileged=True), "nothing of the node's"),
    "a capability": (
        lambda it: engine(it)["securityContext"]["capabilities"].update(add=["SYS_ADMIN"]),
        "nothing of the node's",
    ),
    "root in the container": (lambda it: engine(it)["securityContext"].update(runAsUser=0), "not as root"),
    "root": (lambda it: spec(it)["securityContext"].pop("runAsNonRoot"), "not as root"),
    "another container": (
        lambda it: spec(it)["containers"].append({**engine(it), "image": OTHER}),
        "named by digest and come from",
    ),
    "a container before": (
        lambda it: spec(it).update(initContainers=[{**engine(it), "name": "weights", "image": OTHER}]),
        "named by digest and come from",
    ),
    "no label": (lambda it: it["spec"]["template"]["metadata"]["labels"].pop("tidegate.dev/delivery"), "the label"),
    "another name": (lambda it: it["metadata"].update(name="miner"), "tidegate writes the Rollout"),
    "somebody's Deployment": (
        lambda it: it["spec"].update(workloadRef={"kind": "Deployment", "name": "theirs"}),
        "whose template is its own",
    ),
    "an experiment": (
        lambda it: it["spec"]["strategy"]["canary"]["steps"].insert(0, {"experiment": {"templates": []}}),
        "no step starts an experiment",
    ),
}


JOB = {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "x", "image": OTHER}]}}}}

OBJECTS_OUTSIDE: dict[str, tuple[str, Change, str]] = {
    "an analysis that runs a pod": (
        "AnalysisTemplate",
        lambda it: it["spec"]["metrics"][0].update(provider={"job": JOB}),
        "starts no pods",
    ),
    "an analysis that asks anybody": (
        "AnalysisTemplate",
        lambda it: it["spec"]["metrics"][0]["provider"].update(web={"url": "http://x"}),
        "starts no pods",
    ),
}


PODS_OUTSIDE: dict[str, Change] = {
    "another image": lambda it: it["spec"]["containers"][0].update(image=OTHER),
    "another account": lambda it: it["spec"].update(serviceAccountName="default"),
    "no engine": lambda it: it["spec"]["containers"][0].update(name="main"),
    "the node's network": lambda it: it["spec"].update(hostNetwork=True),
    "a folder of the node": lambda it: it["spec"]["volumes"].append({"name": "e", "hostPath": {"path": "/"}}),
    "privileged": lambda it: it["spec"]["containers"][0]["securityContext"].update(
        privileged=True, allowPrivilegeEscalation=True
    ),
}
