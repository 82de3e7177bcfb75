"""On which node a pod goes, if any: resources, taints, selectors, and pods of lower priority that make room.

Kubernetes: the scheduler's plugins `NodeResourcesFit`, `TaintToleration`, `NodeAffinity`, `NodeUnschedulable` and
`DefaultPreemption`. A cluster without Node objects has room for everything.
"""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

from fakes.argo.world import World

from rollouts.kube.model import Json
from rollouts.kube.resources import NODES, PODS, PRIORITY_CLASSES

_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def place(world: World, pod: Json) -> tuple[str, str]:
    """The first node by name that takes it, or none and the scheduler's reason."""
    nodes = world.everywhere(NODES)
    if not nodes:
        return "simulated-node", ""
    placed = [one for one in world.everywhere(PODS) if one["spec"].get("nodeName")]
    reasons: Counter[str] = Counter()
    for node in nodes:
        why = _refusal(node, pod) or _shortage(node, pod, placed)
        if not why:
            return str(node["metadata"]["name"]), ""
        reasons[why] += 1
    if (room := _make_room(world, pod, nodes, placed)) is not None:
        return room, ""
    texts = ", ".join(f"{count} {why}" for why, count in sorted(reasons.items()))
    return "", f"0/{len(nodes)} nodes are available: {texts}."


def quantity(text: str | float) -> Decimal:
    """A Kubernetes quantity as a number, such as `500m`, `16Gi`, `1`."""
    text = str(text)
    if text.endswith("m"):
        return Decimal(text.removesuffix("m")) / 1000
    unit = next((unit for unit in _UNITS if text.endswith(unit)), "")
    return Decimal(text.removesuffix(unit)) * _UNITS.get(unit, 1)


def requests_of(pod: Json) -> dict[str, Decimal]:
    """What a pod asks for; a limit is a request where none is said."""
    total: dict[str, Decimal] = {"pods": Decimal(1)}
    for container in pod["spec"].get("containers", ()):
        resources = container.get("resources", {})
        for name, text in (resources.get("limits", {}) | resources.get("requests", {})).items():
            total[name] = total.get(name, Decimal(0)) + quantity(text)
    return total


def _refusal(node: Json, pod: Json) -> str:
    spec, labels = node.get("spec", {}), node["metadata"].get("labels", {})
    conditions = node.get("status", {}).get("conditions", ())
    if spec.get("unschedulable") or any(one["type"] == "Ready" and one["status"] != "True" for one in conditions):
        return "node(s) were unschedulable"
    for taint in spec.get("taints", ()):
        if taint["effect"] != "PreferNoSchedule" and not any(
            _tolerates(one, taint) for one in pod["spec"].get("tolerations", ())
        ):
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    wanted = pod["spec"].get("nodeSelector", {})
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", ())
    fits = all(labels.get(key) == value for key, value in wanted.items())
    if not fits or (terms and not any(_fits(term, labels) for term in terms)):
        return "node(s) didn't match Pod's node affinity/selector"
    return ""


def _shortage(node: Json, pod: Json, placed: list[Json]) -> str:
    allocatable = {"pods": "110"} | node.get("status", {}).get("allocatable", {})
    free = {name: quantity(text) for name, text in allocatable.items()}
    for other in placed:
        if other["spec"]["nodeName"] == node["metadata"]["name"]:
            for name, amount in requests_of(other).items():
                free[name] = free.get(name, Decimal(0)) - amount
    lacking = next((name for name, amount in requests_of(pod).items() if amount > free.get(name, 0)), None)
    return f"Insufficient {lacking}" if lacking else ""


def _make_room(world: World, pod: Json, nodes: list[Json], placed: list[Json]) -> str | None:
    """Preempt pods of lower priority on one node, as few as it takes."""
    own = _priority(world, pod)
    for node in nodes:
        if _refusal(node, pod):
            continue
        lower = [
            one for one in placed if one["spec"]["nodeName"] == node["metadata"]["name"] and _priority(world, one) < own
        ]
        for count in range(1, len(lower) + 1):
            left = [one for one in placed if one not in lower[:count]]
            if not _shortage(node, pod, left):
                for victim in lower[:count]:
                    text = f"Preempted by pod {pod['metadata'].get('uid', '')} on node {node['metadata']['name']}"
                    world.event(victim, "Preempted", text, source="default-scheduler")
                    world.delete(victim)
                return str(node["metadata"]["name"])
    return None


def _priority(world: World, pod: Json) -> int:
    name = pod["spec"].get("priorityClassName")
    found = world.find(PRIORITY_CLASSES, name, "") if name else None
    return int((found or {}).get("value", pod["spec"].get("priority", 0)))


def _tolerates(toleration: Json, taint: Json) -> bool:
    key, effect = toleration.get("key"), toleration.get("effect")
    if (key and key != taint["key"]) or (effect and effect != taint["effect"]):
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")


def _fits(term: Json, labels: Json) -> bool:
    return all(_holds(one, labels.get(one["key"])) for one in term.get("matchExpressions", ()))


def _holds(expression: Json, value: str | None) -> bool:
    answers = {
        "In": value in expression.get("values", ()),
        "NotIn": value not in expression.get("values", ()),
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }
    return answers[expression["operator"]]
