"""Whether any node would take a pod, were it empty: labels, then size, then taints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import IntEnum

from rollouts.doctor.objects import at, labels_of, matches, name_of
from rollouts.doctor.quantity import amount, requested, spelled
from rollouts.kube.model import Json


class Fit(IntEnum):
    """How far a node would do."""

    LABELS = 0
    """It is not of the kind that the pod asks for."""
    SIZE = 1
    """It is, and too small."""
    TAINTS = 2
    """It is large enough, and keeps the pod off."""
    ALL = 3
    """It would take the pod."""


def fit(pod: Json, nodes: Iterable[Json]) -> tuple[Fit, tuple[str, ...]]:
    """The best fit of all nodes, and what stands against it on the nodes that fit so far."""
    told = [(node, *_fit_of(pod, node)) for node in nodes]
    best = max((how for _, how, _ in told), default=Fit.ALL)
    against = Counter(reason for _, how, reasons in told if how is best for reason in reasons)
    return best, tuple(f"{reason} ({count} nodes)" for reason, count in against.most_common(3))


def _fit_of(pod: Json, node: Json) -> tuple[Fit, list[str]]:
    for how, problems in ((Fit.LABELS, _labels), (Fit.SIZE, _size), (Fit.TAINTS, _taints)):
        if found := list(problems(pod, node)):
            return how, found
    return Fit.ALL, []


def _labels(pod: Json, node: Json) -> Iterator[str]:
    labels = labels_of(node)
    for key, value in at(pod, "spec", "nodeSelector", default={}).items():
        if labels.get(key) != value:
            yield f"nodeSelector {key}={value}"
    required = at(
        pod, "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"
    )
    # Gt and Lt, and fields of the node, are not looked at: they count as fulfilled.
    terms = [_plain(term) for term in required or []]
    if terms and not any(matches(term, labels) for term in terms):
        keys = sorted({item["key"] for term in terms for item in term["matchExpressions"]})
        yield f"node affinity on {', '.join(keys)}"


def _plain(term: Json) -> Json:
    told = at(term, "matchExpressions", default=[])
    return {"matchExpressions": [item for item in told if item.get("operator") not in {"Gt", "Lt"}]}


def _size(pod: Json, node: Json) -> Iterator[str]:
    has = at(node, "status", "allocatable", default={})
    for name, asked in requested(pod).items():
        if asked > amount(has.get(name, "0")):
            yield f"a pod asks for {spelled(asked)} {name}, a node has {has.get(name, '0')}"


def _taints(pod: Json, node: Json) -> Iterator[str]:
    tolerations = at(pod, "spec", "tolerations", default=[])
    for taint in at(node, "spec", "taints", default=[]):
        keeps_off = taint.get("effect") in {"NoSchedule", "NoExecute"}
        if keeps_off and not any(_tolerates(toleration, taint) for toleration in tolerations):
            value = f"={taint['value']}" if taint.get("value") else ""
            yield f"taint {taint.get('key')}{value}:{taint['effect']}"
    if at(node, "spec", "unschedulable") and not at(node, "spec", "taints"):
        yield f"{name_of(node)} is cordoned"


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") not in {None, "", taint.get("effect")}:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key") in {None, "", taint.get("key")}
    return toleration.get("key") == taint.get("key") and toleration.get("value", "") == taint.get("value", "")
