"""What of its users' traffic a canary sees in each stage, and who counts for which gate there."""

from __future__ import annotations

from collections.abc import Mapping

from gates.planning.forecast import Exposure
from gates.terms import Source
from pipelines.spec import Delivery

SHADOW_SOURCES: Mapping[str, tuple[Source, ...]] = {
    "latency": ("probe",),
    # Mirrored requests: no user saw their answers, so only the proxy can count them.
    "errors": ("proxy",),
    "agreement": ("probe",),
    "judge": ("probe",),
}
CANARY_SOURCES: Mapping[str, tuple[Source, ...]] = {"latency": ("users",), "errors": ("proxy", "users")}


def shadow_exposure(spec: Delivery) -> Exposure:
    """Copies of users' requests, and pairs of our own."""
    assert spec.shadow is not None, "a shadow stage is planned that the spec does not have"
    return Exposure(
        requests_per_second=_users(spec),
        percent=spec.shadow.percent,
        mirrored=True,
        pairs_per_second=spec.shadow.pairs_per_second,
        judged=spec.gates.judge.sample if spec.gates.judge else 1.0,
        within_seconds=spec.shadow.within.total_seconds(),
        look_seconds=spec.look.total_seconds(),
    )


def canary_exposure(spec: Delivery, weight: int) -> Exposure:
    """So many percent of users."""
    assert spec.canary is not None, "a canary stage is planned that the spec does not have"
    return Exposure(
        requests_per_second=_users(spec),
        percent=weight,
        within_seconds=spec.canary.within.total_seconds(),
        look_seconds=spec.look.total_seconds(),
    )


def _users(spec: Delivery) -> float | None:
    return spec.traffic.requests_per_second if spec.traffic else None
