"""Quantities of resources, and whether a node would take a pod, were it empty: labels, then size, then taints."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal

from rollouts.kube.objects import at, containers_of, labels_of
from tidegate.core.model import Json

_FACTORS = {
    **{"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1)},
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", start=1)},
}
_QUANTITY = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?\d+)?)([a-zA-Z]*)")


def parse_quantity(text: object) -> Decimal:
    """The number that a quantity stands for, in its base unit; 0 for what is none."""
    found = _QUANTITY.fullmatch(str(text).strip())
    return Decimal(found[1]) * _FACTORS.get(found[2], Decimal(0)) if found else Decimal(0)


def format_quantity(number: Decimal) -> str:
    """A number as a person reads it: bytes by the binary unit that leaves no fraction."""
    for unit in ("Ti", "Gi", "Mi"):
        if number >= _FACTORS[unit] and number % _FACTORS[unit] == 0:
            return f"{number / _FACTORS[unit]:f}{unit}"
    return f"{number.normalize():f}"


def resource_requests(pod: Json) -> Mapping[str, Decimal]:
    """What one pod asks for: the sum over its containers; a limit counts where a request is not said."""
    sums: dict[str, Decimal] = {}
    for container in containers_of(pod):
        asked = at(container, "resources", "limits", default={}) | at(container, "resources", "requests", default={})
        for name, quantity in asked.items():
            sums[name] = sums.get(name, Decimal(0)) + parse_quantity(quantity)
    return sums


def misfits(pod: Json, node: Json) -> list[str]:
    """Why a node would not take the pod, were it empty: its labels, else its size, else its taints; empty if it would.

    Affinity is not looked at.
    """
    labels, selector = labels_of(node), at(pod, "spec", "nodeSelector", default={})
    others = [f"nodeSelector {key}={value}" for key, value in selector.items() if labels.get(key) != value]
    return others or list(_size(pod, node)) or list(_taints(pod, node))


def _size(pod: Json, node: Json) -> Iterator[str]:
    has = at(node, "status", "allocatable", default={})
    for name, asked in resource_requests(pod).items():
        if asked > parse_quantity(has.get(name, "0")):
            yield f"a pod asks for {format_quantity(asked)} {name}, a node has {has.get(name, '0')}"


def _taints(pod: Json, node: Json) -> Iterator[str]:
    tolerations = at(pod, "spec", "tolerations", default=[])
    for taint in at(node, "spec", "taints", default=[]):
        keeps_off = taint.get("effect") in {"NoSchedule", "NoExecute"}
        if keeps_off and not any(_tolerates(toleration, taint) for toleration in tolerations):
            value = f"={taint['value']}" if taint.get("value") else ""
            yield f"taint {taint.get('key')}{value}:{taint['effect']}"


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") not in {None, "", taint.get("effect")}:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key") in {None, "", taint.get("key")}
    return toleration.get("key") == taint.get("key") and toleration.get("value", "") == taint.get("value", "")
