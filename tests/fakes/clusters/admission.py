"""Admission policies: judged as an API server does, by CEL, and what those of `rollout render` refuse.

One change each of what tidegate writes; the same are tried with a CEL library and by a real API server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
        "volumes are empty ones",
    ),
    "a Secret as a volume": (
        lambda it: spec(it)["volumes"].append({"name": "s", "secret": {"secretName": "notify"}}),
        "volumes are empty ones",
    ),
    "another ConfigMap": (
        lambda it: spec(it)["volumes"].append({"name": "s", "configMap": {"name": "theirs"}}),
        "volumes are empty ones",
    ),
    "a token as a volume": (
        lambda it: spec(it)["volumes"].append(
            {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
        ),
        "volumes are empty ones",
    ),
    "another claim": (
        lambda it: spec(it)["volumes"].append({"name": "c", "persistentVolumeClaim": {"claimName": "theirs"}}),
        "volumes are empty ones",
    ),
    "the node's network": (lambda it: spec(it).update(hostNetwork=True), "nothing of the node's"),
    "the node's processes": (lambda it: spec(it).update(hostPID=True), "nothing of the node's"),
    "a port of the node": (lambda it: engine(it)["ports"][0].update(hostPort=80), "nothing of the node's"),
    "privileged": (lambda it: engine(it)["securityContext"].update(privileged=True), "not root"),
    "a capability": (
        lambda it: engine(it)["securityContext"]["capabilities"].update(add=["SYS_ADMIN"]),
        "not root",
    ),
    "root in the container": (lambda it: engine(it)["securityContext"].update(runAsUser=0), "not root"),
    "root": (lambda it: spec(it)["securityContext"].pop("runAsNonRoot"), "not root"),
    "no seccomp": (lambda it: spec(it)["securityContext"].pop("seccompProfile"), "not root"),
    "a root that can be written": (lambda it: engine(it).pop("securityContext"), "not root"),
    "another command": (lambda it: engine(it).update(command=["sh", "-c", "x"]), "its image's own entrypoint"),
    "another container": (
        lambda it: spec(it)["containers"].append({**engine(it), "name": "more"}),
        "its image's own entrypoint",
    ),
    "a container before": (
        lambda it: spec(it).update(initContainers=[{**engine(it), "name": "weights", "command": ["sh"]}]),
        "its image's own entrypoint",
    ),
    "a hook": (
        lambda it: engine(it)["lifecycle"].update(postStart={"exec": {"command": ["sh"]}}),
        "its image's own entrypoint",
    ),
    "another end": (
        lambda it: engine(it)["lifecycle"]["preStop"]["exec"].update(command=["sh"]),
        "its image's own entrypoint",
    ),
    "a probe that runs something": (
        lambda it: engine(it).update(livenessProbe={"exec": {"command": ["sh"]}}),
        "its image's own entrypoint",
    ),
    "a variable": (lambda it: engine(it)["env"].append({"name": "PYTHONPATH", "value": "/x"}), "no Secret"),
    "a Secret as a variable": (
        lambda it: engine(it)["env"].append(
            {"name": "TIDEGATE_WEIGHTS_TOKEN", "valueFrom": {"secretKeyRef": {"name": "other", "key": "k"}}}
        ),
        "no Secret",
    ),
    "a whole Secret": (lambda it: engine(it).update(envFrom=[{"secretRef": {"name": "notify"}}]), "no Secret"),
    "no keys": (lambda it: engine(it).update(args=["--port", "8000"]), "told the public keys"),
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
    "a Service of another name": ("Service", lambda it: it["metadata"].update(name="theirs"), "named after"),
    "without our label": ("Service", lambda it: it["metadata"].pop("labels"), "with the label"),
    "of another delivery": (
        "Service",
        lambda it: it["metadata"]["labels"].update({"tidegate.dev/delivery": "other"}),
        "with the label",
    ),
    "a door to the world": ("Service", lambda it: it["spec"].update(type="LoadBalancer"), "inside the cluster"),
    "another name's alias": (
        "Service",
        lambda it: it["spec"].update(type="ExternalName", externalName="elsewhere.example.com"),
        "inside the cluster",
    ),
    "somebody's address": ("Service", lambda it: it["spec"].update(externalIPs=["10.0.0.1"]), "inside the cluster"),
    "a route to others": (
        "HTTPRoute",
        lambda it: it["spec"]["rules"][0]["backendRefs"][0].update(name="payments"),
        "the delivery's own Services",
    ),
    "a route to another namespace": (
        "HTTPRoute",
        lambda it: it["spec"]["rules"][0]["backendRefs"][0].update(namespace="payments"),
        "the delivery's own Services",
    ),
    "copies to others": (
        "HTTPRoute",
        lambda it: it["spec"]["rules"][0].update(
            filters=[{"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "spy", "port": 80}}}]
        ),
        "the delivery's own Services",
    ),
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
    "an analysis that reads a Secret": (
        "AnalysisTemplate",
        lambda it: it["spec"]["args"].append({"name": "s", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}),
        "reads no Secret",
    ),
    "a monitor with somebody's password": (
        "PodMonitor",
        lambda it: it["spec"]["podMetricsEndpoints"][0].update(basicAuth={"password": {"name": "a", "key": "b"}}),
        "names no Secret",
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
