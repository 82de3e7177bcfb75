"""Which fields of rendered objects are a delivery's: nobody's patch may change them. Pure.

It is decided by what comes out: a field has to be the same before and after, however the patch is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tidegate.core.model import Json, Loc, Value
from tidegate.core.names import RESERVED

EACH = "[]"
"""In a path: every item that was there, which stay in their order and before all others."""
SAME = "[=]"
"""In a path: every item of a list to which nothing is added."""
ANY = "*"
"""In a path: every key that was there."""


class OwnedField(Value):
    """A field that a patch changed and may not."""

    where: Loc
    """In the object."""
    instead: str
    """Which field of the spec says it."""


def _of_containers(containers: str) -> dict[str, str]:
    return {
        f"{containers} [] name": "a container of your own besides",
        f"{containers} [] image": "`engine.image`",
        f"{containers} [] command": "`engine`",
        f"{containers} [] args": "`engine.vllm.args`",
        f"{containers} [] env []": "another variable",
        f"{containers} [] envFrom": "`env`",
        f"{containers} [] ports []": "another port",
        f"{containers} [] volumeMounts []": "another mount",
        f"{containers} [] resources limits nvidia.com/gpu": "`engine.accelerator_count`",
        f"{containers} [] resources requests nvidia.com/gpu": "`engine.accelerator_count`",
    }


_POD = {
    "spec template metadata labels *": "another label",
    "spec template metadata annotations *": "another annotation",
    "spec template spec serviceAccountName": "`fleet.pod.service_account`",
    "spec template spec automountServiceAccountToken": "a projected volume with a token, in a container of your own",
    "spec template spec terminationGracePeriodSeconds": "`fleet.pod.drain`",
    "spec template spec nodeSelector *": "`fleet.nodes`",
    "spec template spec volumes []": "a volume of your own besides",
    **_of_containers("spec template spec containers"),
    **_of_containers("spec template spec initContainers"),
}

_EVERYWHERE = {
    "apiVersion": "the rendered one",
    "kind": "the rendered one",
    "metadata name": "the rendered one",
    "metadata namespace": "`fleet.namespace`",
    "metadata labels *": "another label",
    "metadata annotations *": "another annotation",
    "status": "nothing: controllers write it",
}

_RIGHTS = "rights of their own in a Role of yours"
_BY_KIND: Mapping[str, Mapping[str, str]] = {
    "Rollout": {
        "spec replicas": "`fleet.replicas`",
        "spec selector": "nothing: it chooses pods of every version",
        "spec strategy": "`stages` and `fleet`: a delivery moves weights and steps",
        "spec workloadRef": "patches of its pod template",
        "spec paused": "nothing: people pause at night",
        "spec restartAt": "nothing: people restart",
        "spec rollbackWindow": "`fleet.previous`",
        "spec revisionHistoryLimit": "`fleet.previous`",
        "spec progressDeadlineSeconds": "`fleet.pod.start_within`",
        "spec progressDeadlineAbort": "nothing: a delivery takes versions back",
        **_POD,
    },
    "Deployment": {"spec selector": "nothing: it chooses the pods", **_POD},
    "Service": {
        "spec selector": "nothing: it chooses pods of one version",
        "spec ports": "nothing: routes lead to them",
        "spec type": "a Service of your own: this one would lead past all weights",
        "spec externalIPs": "a Service of your own: this one would lead past all weights",
        "spec externalName": "a Service of your own: this one would lead past all weights",
    },
    "HTTPRoute": {
        "spec parentRefs": "`fleet.gateway`",
        "spec hostnames": "`fleet.gateway.hosts`",
        "spec rules [=] name": "the rendered one",
        "spec rules [=] backendRefs": "`stages`: a delivery moves weights",
    },
    "VirtualService": {
        "spec gateways": "`fleet.gateway`",
        "spec hosts": "`fleet.gateway.hosts`",
        "spec tcp": "a VirtualService of your own",
        "spec tls": "a VirtualService of your own",
        **{
            f"spec http [=] {field}": "`stages`: a delivery moves weights"
            for field in ("name", "route", "mirror", "mirrors", "mirrorPercentage", "redirect", "delegate")
        },
    },
    "PodDisruptionBudget": {"spec selector": "nothing: it chooses all engines"},
    "NetworkPolicy": {"spec podSelector": "nothing: it chooses all engines"},
    "ScaledObject": {"spec scaleTargetRef": "nothing: it scales the Rollout"},
    "HorizontalPodAutoscaler": {"spec scaleTargetRef": "nothing: it scales the Rollout"},
    "PodMonitor": {
        "spec selector": "nothing: it chooses all engines",
        "spec podMetricsEndpoints": "`metrics`: gates go by these labels",
    },
    "NodePool": {"spec template metadata labels *": "`fleet.nodes`"},
    "AnalysisTemplate": {"spec": "`slos`"},
    "ConfigMap": {"data": "`engines.keys` of the trust file", "binaryData": "`engines.keys` of the trust file"},
    "ServiceAccount": {"automountServiceAccountToken": "nothing: no pod of it gets a token"},
    "Role": {"rules": _RIGHTS},
    "ClusterRole": {"rules": _RIGHTS, "aggregationRule": _RIGHTS},
    "RoleBinding": {"roleRef": _RIGHTS, "subjects": _RIGHTS},
    "ClusterRoleBinding": {"roleRef": _RIGHTS, "subjects": _RIGHTS},
    "ValidatingAdmissionPolicy": {"spec": "a policy of your own: this one holds deliveries to their objects"},
    "ValidatingAdmissionPolicyBinding": {"spec": "a policy of your own: this one holds deliveries to their objects"},
    "ClusterImagePolicy": {"spec": "`engines` of the trust file"},
    "TriggerAuthentication": {"spec": "`fleet.regions.*.prometheus`"},
}
"""What is a delivery's, and what says it instead."""

_KEYS = ("name", "mountPath", "containerPort")
"""By which items of a list are the same one."""


def touched(before: Json, after: Json) -> Iterator[OwnedField]:
    """Every field of the delivery's in which the two differ, and every reserved key that came with the second."""
    for path, instead in {**_EVERYWHERE, **_BY_KIND.get(before["kind"], {})}.items():
        for where in _differing(before, after, path.split(), ()):
            yield OwnedField(where=where, instead=instead)
    for metadata in (("metadata",), ("spec", "template", "metadata")):
        for part in ("labels", "annotations"):
            yield from _reserved(_at(before, (*metadata, part)), _at(after, (*metadata, part)), (*metadata, part))


def _reserved(before: Any, after: Any, where: Loc) -> Iterator[OwnedField]:
    was = before if isinstance(before, dict) else {}
    for key in after if isinstance(after, dict) else ():
        if key not in was and key.startswith(RESERVED):
            yield OwnedField(where=(*where, key), instead="a key of your own")


def _at(part: Any, where: Loc) -> Any:
    for key in where:
        part = part.get(key) if isinstance(part, dict) else None
    return part


def _differing(before: Any, after: Any, path: list[str], where: Loc) -> Iterator[Loc]:
    if not path or before is None:
        if before != after and not (before is None and path and _at(after, tuple(path)) is None):
            yield where if not path else (*where, *path)
        return
    step, *rest = path
    if step == ANY:
        for key, value in before.items():
            yield from _differing(value, _at(after, (key,)), rest, (*where, key))
    elif step in {EACH, SAME}:
        yield from _differing_items(before, after, step, rest, where)
    else:
        was, now = before.get(step), after.get(step) if isinstance(after, dict) else None
        if was is None and now is None:
            return
        if was is None and rest and rest[0] in {ANY, EACH, SAME}:
            return
        yield from _differing(was, now, rest, (*where, step))


def _differing_items(before: list[Any], after: Any, step: str, rest: list[str], where: Loc) -> Iterator[Loc]:
    now = after if isinstance(after, list) else []
    if step == SAME and len(now) != len(before):
        yield where
        return
    for place, was in enumerate(before):
        there = now[place] if place < len(now) else None
        if there is None or item_key(there) != item_key(was):
            yield (*where, place)
        else:
            yield from _differing(was, there, rest, (*where, place))


def item_key(item: Any) -> Any:
    """What an item of a list is called; None of one without a name."""
    return next((item[key] for key in _KEYS if isinstance(item, dict) and key in item), None)
