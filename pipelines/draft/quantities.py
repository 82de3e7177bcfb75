"""Quantities of Kubernetes as specs write them. Pure."""

from __future__ import annotations

import math
import re

_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_QUANTITY = re.compile(r"([0-9.]+)(m|k|M|G|T|Ki|Mi|Gi|Ti)?")


def memory_text(quantity: str) -> str | None:
    """As `64Gi` or `512Mi`, rounded up to whole MiB; None for what cannot be read."""
    found = _QUANTITY.fullmatch(quantity)
    if found is None or found[2] == "m":
        return None
    mebibytes = math.ceil(float(found[1]) * _UNITS[found[2] or ""] / 2**20)
    if mebibytes < 1:
        return None
    return f"{mebibytes // 1024}Gi" if mebibytes % 1024 == 0 else f"{mebibytes}Mi"


def mebibytes_of(memory: str) -> int:
    """How many MiB a text of `memory_text` says."""
    return int(memory[:-2]) * (1024 if memory.endswith("Gi") else 1)


def cores_text(quantity: str) -> str | None:
    """As `8`, `1.5` or `500m`; None for what cannot be read, and for nothing at all."""
    if re.fullmatch(r"[1-9][0-9]*m?|[0-9]*[1-9][0-9]*\.[0-9]{1,3}|0\.[0-9]{0,2}[1-9]", quantity):
        return quantity
    return None
