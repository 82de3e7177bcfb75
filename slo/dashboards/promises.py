"""What a service's SLOs promise, as far as dashboards draw it as a line or a colour."""

from __future__ import annotations

from collections.abc import Sequence

from slo.spec import SloSpec
from tidegate.core.model import Value


class Promises(Value):
    """Lines of a service; None where it promises nothing of that kind."""

    service: str
    bad_share: float | None = None
    """Of requests that may fail, 0 to 1."""
    ttft_seconds: float | None = None
    e2e_seconds: float | None = None
    itl_seconds: float | None = None
    kv_cache: float | None = None
    """Share that is promised not to be exceeded, 0 to 1."""
    quality: float | None = None
    """Composite score that answers are promised to have, 0 to 1."""


def promises_of(service: str, slos: Sequence[SloSpec]) -> Promises:
    """The first promise of each kind: of two lines, the one that a person wrote first is drawn."""
    found: dict[str, float] = {}
    for slo in slos:
        for name, value in _lines(slo).items():
            found.setdefault(name, value)
    return Promises(service=service, **found)


def _lines(slo: SloSpec) -> dict[str, float]:
    times = {"ttft_seconds": slo.ttft, "itl_seconds": slo.itl, "e2e_seconds": slo.e2e}
    lines = {name: within.below.total_seconds() for name, within in times.items() if within}
    if slo.errors:
        lines["bad_share"] = (100 - slo.objective) / 100
    if slo.kv_cache:
        lines["kv_cache"] = slo.kv_cache.below
    if slo.quality and slo.quality.dimension == "overall":
        lines["quality"] = slo.quality.at_least
    return lines
