"""Kubernetes' quantities as numbers: `1500m`, `16Gi`, `8`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

from rollouts.doctor.objects import at, containers_of
from rollouts.kube.model import Json

_FACTORS = {
    **{"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1)},
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", start=1)},
}
_QUANTITY = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?\d+)?)([a-zA-Z]*)")


def amount(text: object) -> Decimal:
    """The number that a quantity stands for, in its base unit; 0 for what is none."""
    found = _QUANTITY.fullmatch(str(text).strip())
    return Decimal(found[1]) * _FACTORS.get(found[2], Decimal(0)) if found else Decimal(0)


def spelled(number: Decimal) -> str:
    """A number as a person reads it: bytes by the binary unit that leaves no fraction."""
    for unit in ("Ti", "Gi", "Mi"):
        if number >= _FACTORS[unit] and number % _FACTORS[unit] == 0:
            return f"{number / _FACTORS[unit]:f}{unit}"
    return f"{number.normalize():f}"


def requested(pod: Json) -> Mapping[str, Decimal]:
    """What one pod asks for: the sum over its containers; a limit counts where a request is not said."""
    sums: dict[str, Decimal] = {}
    for container in containers_of(pod):
        asked = at(container, "resources", "limits", default={}) | at(container, "resources", "requests", default={})
        for name, quantity in asked.items():
            sums[name] = sums.get(name, Decimal(0)) + amount(quantity)
    return sums
